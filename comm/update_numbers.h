// What every engine computes alike around an update: divisor, clipping coefficient, and the tests
// for numbers that are not finite, which fail with Exit::numbers. Called by tasks of the update
// stream.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/graph/param_store.h"
#include "core/optim/optimizer.h"

namespace sidestep {

/// Gradients are sums: sets grad_scale to 1 / divisor. With nothing to divide by (0) the weights
/// stay as they are: scale and rate become 0.
void set_divisor(UpdateScalars& scalars, double divisor);

/// Clips by global norm: multiplies grad_scale by min(1, limit / norm), as PyTorch's
/// clip_grad_norm_. `squares`: sum of squares of the gradient before it is divided. Returns the
/// norm of the divided gradient.
double clip(UpdateScalars& scalars, double squares, double divisor, double limit);

void check_finite_loss(double loss, std::int64_t step);
/// `squares` is the sum of squares of these parameters' part of `flat`, which is laid out like the
/// store's values; `what` it is: "the reduced gradient". Names the parameters, as far as host
/// memory can be looked at.
void check_finite(double squares, const ParamStore& store, const View& flat,
                  std::span<const ParamId> params, std::string_view what, std::int64_t step);

}  // namespace sidestep
