#include "comm/drop_tau.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sidestep {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kCandidates = 200;
constexpr double kWorthwhile = 1.01;

DropChoice replay(const std::vector<std::vector<double>>& table, std::int64_t units, double tau) {
  double full_time = 0, capped_time = 0, done = 0, planned = 0;
  for (const std::vector<double>& step : table) {
    double full = 0, capped = 0;
    for (const double unit : step) {
      if (unit <= 0) continue;
      const auto n = std::clamp(std::ceil(tau / unit), 1.0, static_cast<double>(units));
      full = std::max(full, static_cast<double>(units) * unit);
      capped = std::max(capped, n * unit);
      done += n;
      planned += static_cast<double>(units);
    }
    full_time += full;
    capped_time += capped;
  }
  if (planned == 0) return {.tau_s = kInfinity};
  const double dropped = 1 - done / planned;
  return {.tau_s = tau, .speedup = (1 - dropped) * full_time / capped_time, .dropped = dropped};
}

}  // namespace

DropChoice choose_tau(const std::vector<std::vector<double>>& table, std::int64_t units,
                      double cap) {
  double least = kInfinity, most = 0;
  for (const std::vector<double>& step : table) {
    for (const double unit : step) {
      if (unit <= 0) continue;
      least = std::min(least, unit * static_cast<double>(units) / 2);
      most = std::max(most, unit * static_cast<double>(units));
    }
  }
  DropChoice best{.tau_s = kInfinity};
  if (most == 0 || units < 2) return best;
  for (int i = 0; i < kCandidates; ++i) {
    const DropChoice choice = replay(table, units, least + (most - least) * i / kCandidates);
    if (choice.dropped <= cap && choice.speedup > best.speedup) best = choice;
  }
  return best.speedup >= kWorthwhile ? best : DropChoice{.tau_s = kInfinity};
}

}  // namespace sidestep
