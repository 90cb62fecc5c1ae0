// AdamW: Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019, algorithm 2, in
// PyTorch's order of operations.
#include <cmath>

#include "core/base/host_device.h"
#include "core/ops/launch.h"
#include "core/optim/rules.h"

namespace sidestep {
namespace {

struct AdamwStep {
  float* w;
  float* m;
  float* v;
  const float* g;
  const UpdateScalars* scalars;
  float beta1, rest1;  // rest = 1 - beta, rounded once from float64
  float beta2, rest2;
  float epsilon;
  float weight_decay;

  SIDESTEP_HD void operator()(std::int64_t i) const {
    const float dw = g[i] * scalars->grad_scale;
    const float mean = beta1 * m[i] + rest1 * dw;
    const float square = beta2 * v[i] + rest2 * dw * dw;
    const float step = scalars->lr / scalars->correction1;
    const float root = sqrtf(square) / sqrtf(scalars->correction2) + epsilon;
    w[i] = w[i] * (1.0f - scalars->lr * weight_decay) - step * (mean / root);
    m[i] = mean;
    v[i] = square;
  }
};

class Adamw final : public Optimizer {
 public:
  Adamw(const OptimizerConfig& config, ParamStore& store)
      : config_(config), first_(store.add_slot("exp_avg")), second_(store.add_slot("exp_avg_sq")) {}

  std::string_view name() const override { return "adamw"; }

  UpdateScalars scalars(double lr, std::int64_t t) const override {
    const auto power = static_cast<double>(t);
    return {.lr = static_cast<float>(lr),
            .correction1 = static_cast<float>(1.0 - std::pow(config_.beta1, power)),
            .correction2 = static_cast<float>(1.0 - std::pow(config_.beta2, power))};
  }

  void update(Stream& stream, ParamStore& store, std::span<const ParamId> params,
              const UpdateScalars* scalars) const override {
    AdamwStep body{};
    body.scalars = scalars;
    body.beta1 = static_cast<float>(config_.beta1);
    body.rest1 = static_cast<float>(1.0 - config_.beta1);
    body.beta2 = static_cast<float>(config_.beta2);
    body.rest2 = static_cast<float>(1.0 - config_.beta2);
    body.epsilon = static_cast<float>(config_.epsilon);
    for_each_run(store, params, [&](std::int64_t at, std::int64_t n, bool decay) {
      body.w = store.values().as<float>() + at;
      body.m = store.slot(first_).as<float>() + at;
      body.v = store.slot(second_).as<float>() + at;
      body.g = store.grads().as<float>() + at;
      body.weight_decay = decay ? static_cast<float>(config_.weight_decay) : 0.0f;
      launch_map(stream, n, body);
    });
  }

 private:
  OptimizerConfig config_;
  int first_;
  int second_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const OptimizerConfig& config, ParamStore& store) {
  return std::make_unique<Adamw>(config, store);
}

}  // namespace sidestep
