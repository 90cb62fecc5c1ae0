#include "comm/selsync_vote.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace sidestep {

SelSyncVote::SelSyncVote(const Config& config)
    : config_(config), smoothing_(std::min(config.ranks / 100.0, 1.0)), delta_(config.delta) {
  if (config.delta <= 0) recorded_.reserve(kCalibrated);
}

bool SelSyncVote::vote(double n2) {
  if (!(n2 > 0)) return false;
  const double before = mean_;
  mean_ = steps_ == 0 ? n2 : smoothing_ * n2 + (1 - smoothing_) * mean_;
  change_ = std::abs(mean_ - before) / std::max(before, std::numeric_limits<double>::min());
  ++steps_;
  if (delta_ <= 0) {
    if (steps_ > kForced) recorded_.push_back(change_);
    if (steps_ < kCalibrated) return true;
    const double q = std::pow(1 - config_.rate, 1.0 / config_.ranks);
    const auto at = static_cast<std::size_t>(q * static_cast<double>(recorded_.size() - 1));
    std::ranges::nth_element(recorded_, recorded_.begin() + static_cast<std::ptrdiff_t>(at));
    delta_ = std::max(recorded_[at], std::numeric_limits<double>::min());
    return true;
  }
  return steps_ <= kForced || change_ >= delta_;
}

std::string SelSyncVote::save() const {
  return nlohmann::json{
      {"steps", steps_}, {"mean", mean_}, {"delta", delta_}, {"recorded", recorded_}}
      .dump();
}

void SelSyncVote::load(const std::string& state) {
  const auto json = nlohmann::json::parse(state);
  steps_ = json["steps"];
  mean_ = json["mean"];
  delta_ = json["delta"];
  recorded_ = json["recorded"].get<std::vector<double>>();
}

}  // namespace sidestep
