#include "core/optim/schedule.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <string_view>

#include "core/base/error.h"

namespace sidestep {
namespace {

void check_positive(std::string_view schedule, std::string_view what, std::int64_t found) {
  if (found <= 0) {
    fail(Exit::settings, fmt::format("schedule {}: expected {} of at least 1, found {}; set it",
                                     schedule, what, found));
  }
}

/// Half a wave from lr at the end of the warm-up to min_lr at total_samples.
double cosine_rate(const ScheduleConfig& c, std::int64_t seen) {
  check_positive(c.name, "total samples", c.total_samples);
  if (seen >= c.total_samples) return c.min_lr;
  if (seen <= c.warmup_samples) return c.lr;
  const double progress = static_cast<double>(seen - c.warmup_samples) /
                          static_cast<double>(c.total_samples - c.warmup_samples);
  return c.min_lr + 0.5 * (c.lr - c.min_lr) * (1.0 + std::cos(std::numbers::pi * progress));
}

double step_rate(const ScheduleConfig& c, std::int64_t seen) {
  check_positive(c.name, "step samples", c.step_samples);
  return c.lr * std::pow(c.gamma, static_cast<double>(seen / c.step_samples));
}

double rate_after_warmup(const ScheduleConfig& c, std::int64_t seen) {
  if (c.name == "constant") return c.lr;
  if (c.name == "step") return step_rate(c, seen);
  if (c.name == "cosine") return cosine_rate(c, seen);
  fail(Exit::settings,
       fmt::format("schedule: expected one of constant, step, cosine, found \"{}\"", c.name));
}

}  // namespace

double learning_rate(const ScheduleConfig& config, std::int64_t samples_seen, std::int64_t batch) {
  const double rate = rate_after_warmup(config, samples_seen);
  if (samples_seen + batch >= config.warmup_samples) return rate;
  return rate * static_cast<double>(samples_seen + batch) /
         static_cast<double>(config.warmup_samples);
}

}  // namespace sidestep
