// Versions of CUDA, cuDNN and NCCL, for --version. Here because NCCL's header is. Any thread.
#pragma once

#include <vector>

#include "core/ops/library_versions.h"

namespace sidestep {

/// In a build without CUDA: one entry that says so.
std::vector<LibraryVersion> cuda_library_versions();

}  // namespace sidestep
