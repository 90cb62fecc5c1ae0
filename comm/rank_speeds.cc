#include "comm/rank_speeds.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace sidestep {

double lower_median(std::span<const double> values, std::vector<double>& scratch) {
  scratch.clear();
  std::ranges::copy_if(values, std::back_inserter(scratch), [](double v) { return v > 0; });
  if (scratch.empty()) return 0;
  const auto middle = scratch.begin() + static_cast<std::ptrdiff_t>((scratch.size() - 1) / 2);
  std::nth_element(scratch.begin(), middle, scratch.end());
  return *middle;
}

RankSpeeds::RankSpeeds(int ranks)
    : unit_s_(static_cast<std::size_t>(ranks)),
      ring_(kWindow, std::vector<double>(static_cast<std::size_t>(ranks))) {
  scratch_.reserve(static_cast<std::size_t>(ranks));
}

void RankSpeeds::observe(std::span<const RankEntry> entries) {
  std::vector<double>& row = ring_[static_cast<std::size_t>(rounds_) % kWindow];
  bool any = false;
  for (std::size_t r = 0; r < unit_s_.size(); ++r) {
    const RankEntry& entry = entries[r];
    row[r] = entry.compute_units > 0 ? static_cast<double>(entry.compute_ns) * 1e-9 /
                                           static_cast<double>(entry.compute_units)
                                     : 0;
    if (row[r] <= 0) continue;
    any = true;
    unit_s_[r] = unit_s_[r] > 0 ? (1 - kSmoothing) * unit_s_[r] + kSmoothing * row[r] : row[r];
  }
  if (!any) return;  // the first headers hold no times
  ++rounds_;
  scratch_.clear();
  std::vector<double> steps;
  for (const RankEntry& entry : entries) steps.push_back(static_cast<double>(entry.compute_ns) * 1e-9);
  const double step = lower_median(steps, scratch_);
  step_s_ = step_s_ > 0 ? (1 - 1.0 / 32) * step_s_ + step / 32 : step;
}

double RankSpeeds::clean_unit_s() const {
  std::vector<double> sorted;
  std::ranges::copy_if(unit_s_, std::back_inserter(sorted), [](double v) { return v > 0; });
  if (sorted.empty()) return 0;
  std::ranges::sort(sorted);
  return sorted[(sorted.size() - 1) / 4];
}

double RankSpeeds::persistence(int rank) const {
  std::size_t slow = 0, known = 0;
  std::vector<double> scratch;
  for (std::size_t i = 0; i < std::min<std::size_t>(kWindow, static_cast<std::size_t>(rounds_)); ++i) {
    const double own = ring_[i][static_cast<std::size_t>(rank)];
    if (own <= 0) continue;
    ++known;
    const double median = lower_median(ring_[i], scratch);
    if (own > kSlow * median && own - median > kLeast) ++slow;
  }
  return known > 0 ? static_cast<double>(slow) / static_cast<double>(known) : 0;
}

std::vector<std::vector<double>> RankSpeeds::table() const {
  std::vector<std::vector<double>> rows;
  const auto rounds = static_cast<std::size_t>(rounds_);
  for (std::size_t i = rounds - std::min(rounds, kWindow); i < rounds; ++i)
    rows.push_back(ring_[i % kWindow]);
  return rows;
}

std::string RankSpeeds::save() const {
  return nlohmann::json{{"rounds", rounds_}, {"unit_s", unit_s_}, {"step_s", step_s_}, {"ring", ring_}}
      .dump();
}

void RankSpeeds::load(const std::string& state) {
  const auto json = nlohmann::json::parse(state);
  if (json["unit_s"].size() != unit_s_.size()) return;
  rounds_ = json["rounds"];
  unit_s_ = json["unit_s"].get<std::vector<double>>();
  step_s_ = json["step_s"];
  ring_ = json["ring"].get<std::vector<std::vector<double>>>();
}

}  // namespace sidestep
