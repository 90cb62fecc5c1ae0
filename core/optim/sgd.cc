// Stochastic gradient descent with momentum, in PyTorch's form (dampening 0).
#include "core/base/host_device.h"
#include "core/ops/launch.h"
#include "core/optim/rules.h"

namespace sidestep {
namespace {

struct SgdStep {
  float* w;
  float* v;
  const float* g;
  const UpdateScalars* scalars;
  float momentum;
  float weight_decay;
  bool nesterov;

  SIDESTEP_HD void operator()(std::int64_t i) const {
    const float dw = g[i] * scalars->grad_scale + weight_decay * w[i];
    const float velocity = momentum * v[i] + dw;
    const float direction = nesterov ? dw + momentum * velocity : velocity;
    w[i] -= scalars->lr * direction;
    v[i] = velocity;
  }
};

class Sgd final : public Optimizer {
 public:
  Sgd(const OptimizerConfig& config, ParamStore& store)
      : momentum_(static_cast<float>(config.momentum)),
        weight_decay_(static_cast<float>(config.weight_decay)),
        nesterov_(config.nesterov),
        slot_(store.add_slot("momentum")) {}

  std::string_view name() const override { return "sgd"; }

  UpdateScalars scalars(double lr, std::int64_t) const override {
    return {.lr = static_cast<float>(lr)};
  }

  void update(Stream& stream, ParamStore& store, std::span<const ParamId> params,
              const UpdateScalars* scalars) const override {
    float* const w = store.values().as<float>();
    float* const v = store.slot(slot_).as<float>();
    const float* const g = store.grads().as<float>();
    for_each_run(store, params, [&](std::int64_t at, std::int64_t n, bool decay) {
      launch_map(stream, n,
                 SgdStep{w + at, v + at, g + at, scalars, momentum_, decay ? weight_decay_ : 0.0f,
                         nesterov_});
    });
  }

 private:
  float momentum_;
  float weight_decay_;
  bool nesterov_;
  int slot_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const OptimizerConfig& config, ParamStore& store) {
  return std::make_unique<Sgd>(config, store);
}

}  // namespace sidestep
