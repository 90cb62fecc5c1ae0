// `sidestep inspect FILE`: what a checkpoint holds.
#pragma once

#include <string>

#include "io/checkpoint_file.h"

namespace sidestep {

/// Attributes by group, then datasets with shape, dtype and size. Pure.
std::string describe_checkpoint(const CheckpointContent& content);

}  // namespace sidestep
