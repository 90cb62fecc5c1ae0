// Versions of this program and of every library: as compiled against and as loaded.
#pragma once

#include <string>
#include <vector>

#include "core/ops/library_versions.h"

namespace sidestep {

std::string program_version();
std::vector<LibraryVersion> library_versions();
/// The text of `sidestep --version`.
std::string version_text();

}  // namespace sidestep
