// Optimizers: state in the ParamStore's slots, one single-source elementwise body each.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/device/stream.h"
#include "core/graph/param_store.h"

namespace sidestep {

/// Scalars of one update, read when the update runs (not when it is enqueued), because the divisor
/// is known only once the round's header is in. Must lie in host (pinned) memory that outlives it.
struct UpdateScalars {
  float lr = 0;
  float grad_scale = 1;   ///< 1 / divisor, times the clipping coefficient
  float correction1 = 1;  ///< adamw: 1 - beta1^t
  float correction2 = 1;  ///< adamw: 1 - beta2^t
};

struct OptimizerConfig {
  std::string name = "sgd";  ///< "sgd" or "adamw"
  double momentum = 0.9;     ///< sgd: v = momentum v + g; w -= lr v (PyTorch's form, dampening 0)
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  ///< adamw (Loshchilov and Hutter 2019)
  double weight_decay = 0;   ///< sgd: added to g; adamw: decoupled; only where spec.decay
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual std::string_view name() const = 0;
  /// Scalars of the update number `t` (1 for the first); grad_scale is left at 1.
  virtual UpdateScalars scalars(double lr, std::int64_t t) const = 0;
  /// Enqueues the update of these parameters from their gradients. Allocates nothing.
  virtual void update(Stream& stream, ParamStore& store, std::span<const ParamId> params,
                      const UpdateScalars* scalars) const = 0;
};

/// Adds the optimizer's slots ("momentum"; "exp_avg", "exp_avg_sq") to the store.
/// Fails with Exit::settings for an unknown name.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, ParamStore& store);

}  // namespace sidestep
