// Whole-buffer checks of reduced gradients. Results land in host memory when the stream gets there.
#pragma once

#include "core/device/buffer.h"
#include "core/device/stream.h"

namespace sidestep {

/// Enqueues *sum_of_squares = sum x_i^2 in float64, in one fixed order (independent of threads).
/// Not finite if any element is not finite. `result` is host memory that outlives the work.
void sum_of_squares(Stream& stream, const View& x, double* result);

}  // namespace sidestep
