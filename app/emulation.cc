#include "app/emulation.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "comm/self_stop.h"

namespace sidestep {
namespace {

constexpr double kDefaultLink = 1000;  // Mbit/s, where only a slow link is asked for

void sleep_ns(std::int64_t ns) {
  if (ns > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
}

}  // namespace

Emulation::Emulation(const Settings& settings, int rank, int ranks, std::int64_t total_steps,
                     int units)
    : injector_(settings.inject, static_cast<std::uint64_t>(settings.seed), ranks, total_steps),
      rank_(rank),
      units_(units),
      emulated_ns_(static_cast<std::int64_t>(settings.emulate_step * 1e6)),
      link_ns_per_byte_(settings.emulate_link > 0 ? 8e3 / settings.emulate_link : 0),
      round_steps_(settings.policy == "window" ? static_cast<int>(std::ceil(settings.window)) : 1),
      clean_step_ns_(emulated_ns_) {}

void Emulation::begin_unit(Stream& compute) {
  if (active()) compute.host([this] { unit_begin_ns_ = now_ns(); });
}

// The micro-batch takes its emulated time, or the real one if that is longer, and the delay. The delay
// lies before backward, so that gradients appear as they do in a slow pass: late.
void Emulation::pad(Stream& compute, std::int64_t step, int unit, const LoadedBatch& batch) {
  if (!active()) return;
  const std::int64_t clean = clean_step_ns();
  if (clean == 0) return;
  if (round_steps_ > 1) {
    step = (step - 1) * round_steps_ + unit + 1;
    unit = 0;
  }
  double factor = 1;
  if (injector_.by_content())
    factor = injector_.content(batch.ids, {batch.y.as<std::int32_t>(),
                                            static_cast<std::size_t>(batch.count)});
  const double unit_ns = static_cast<double>(clean) / units_;
  const double delay = injector_.compute(rank_, step, unit, units_) * static_cast<double>(clean);
  const bool emulated = emulated_ns_ > 0;
  const auto until = static_cast<std::int64_t>(emulated ? unit_ns * factor + delay : 0);
  const auto extra = static_cast<std::int64_t>(emulated ? 0 : unit_ns * (factor - 1) + delay);
  compute.host([this, until, extra] { sleep_ns(extra + std::max<std::int64_t>(0, until - (now_ns() - unit_begin_ns_))); });
}

void Emulation::before_step(std::int64_t step) {
  if (!injector_.active()) return;
  for (std::int64_t s = last_step_ > 0 ? last_step_ + 1 : step; s <= step; ++s) {
    if (injector_.kills(rank_, s)) kill_self();
    if (const double seconds = injector_.stop_seconds(rank_, s); seconds > 0)
      stop_self_for(seconds);
  }
  last_step_ = step;
}

void Emulation::delay_loader(std::int64_t step) const {
  if (!injector_.active()) return;
  sleep_ns(static_cast<std::int64_t>(injector_.loader(rank_, step) *
                                     static_cast<double>(clean_step_ns())));
}

void Emulation::delay_transfer(std::size_t bytes, std::int64_t step) const {
  const bool known = rounds_.load() >= kCalibrated;  // then the detector has seen the usual link
  const double factor = injector_.active() && known ? injector_.comm_factor(rank_, step) : 1;
  if (link_ns_per_byte_ == 0 && factor <= 1) return;
  const bool emulated = link_ns_per_byte_ > 0;
  const double per_byte = emulated ? link_ns_per_byte_ : 8e3 / kDefaultLink;
  sleep_ns(static_cast<std::int64_t>(static_cast<double>(bytes) * per_byte *
                                     (emulated ? factor : factor - 1)));
}

void Emulation::observe(std::span<const RankEntry> entries) {
  ++rounds_;
  if (!active() || clean_step_ns() > 0) return;
  if (measured_.capacity() == 0) measured_.reserve(entries.size() * kCalibrated);
  if (++observed_ > 3)  // the first steps warm caches up
    for (const RankEntry& entry : entries)  // its times may be those of several steps
      if (entry.compute_units > 0) measured_.push_back(entry.compute_ns * units_ / entry.compute_units);
  if (observed_ < kCalibrated || measured_.empty()) return;
  const auto middle = measured_.begin() + static_cast<std::ptrdiff_t>(measured_.size() / 2);
  std::nth_element(measured_.begin(), middle, measured_.end());
  clean_step_ns_ = *middle;
}

}  // namespace sidestep
