#include "comm/update_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "core/base/error.h"

namespace sidestep {
namespace {

constexpr const char* kRemedy = "lower --lr or set --clip-norm, and look at the data of this step";

std::string not_finite_params(const ParamStore& store, const View& flat,
                              std::span<const ParamId> params) {
  std::string names;
  for (const ParamId p : params) {
    if (flat.device.kind == DeviceKind::cpu) {
      const std::span<const float> values(flat.as<float>() + store.offset(p),
                                          static_cast<std::size_t>(store.spec(p).shape.numel()));
      if (std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); }))
        continue;
    }
    names += (names.empty() ? "" : ", ") + store.spec(p).name;
  }
  return names;
}

}  // namespace

void set_divisor(UpdateScalars& scalars, double divisor) {
  scalars.grad_scale = divisor > 0 ? static_cast<float>(1.0 / divisor) : 0;
  if (divisor <= 0) scalars.lr = 0;
}

double clip(UpdateScalars& scalars, double squares, double divisor, double limit) {
  constexpr double kEpsilon = 1e-6;  // PyTorch's
  const double norm = divisor > 0 ? std::sqrt(squares) / divisor : 0;
  scalars.grad_scale *= static_cast<float>(std::min(1.0, limit / (norm + kEpsilon)));
  return norm;
}

void check_finite_loss(double loss, std::int64_t step) {
  if (std::isfinite(loss)) return;
  fail(Exit::numbers,
       fmt::format("step {}: the loss summed over all ranks is not finite: expected a number, "
                   "found {}; {}",
                   step, loss, kRemedy));
}

void check_finite(double squares, const ParamStore& store, const View& flat,
                  std::span<const ParamId> params, std::string_view what, std::int64_t step) {
  if (std::isfinite(squares)) return;
  fail(Exit::numbers, fmt::format("step {}: {} of {} is not finite: expected numbers, found inf or "
                                  "nan; {}",
                                  step, what, not_finite_params(store, flat, params), kRemedy));
}

}  // namespace sidestep
