// Balance: slow ranks get fewer micro-batches, so that all end at the same time (Tyagi and Sharma
// 2023; LB-BSP 2020). Only for slowness that lasts: single slow steps change nothing.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "comm/policies/policies.h"
#include "comm/rank_speeds.h"
#include "comm/shares.h"

namespace sidestep {
namespace {

constexpr std::int64_t kEvery = 16;  ///< steps between decisions
constexpr double kPersistent = 0.8;
constexpr int kCalmDecisions = 4;    ///< in a row before shares are even again

class Balance final : public SyncPolicy {
 public:
  explicit Balance(const PolicyConfig& config)
      : unit_(std::max<std::int64_t>(config.micro_batch, 1)), speeds_(config.ranks) {}

  std::string_view name() const override { return "balance"; }
  Family family() const override { return Family::gradient; }
  bool varies() const override { return true; }

  void plan(const StepInfo& info, WorkPlan& plan) override {
    const std::vector<double>& times = info.step >= next_from_ ? next_ : times_;
    const std::int64_t units = info.global_batch / unit_;
    if (times.empty() || units < info.ranks)
      return even_shares(info.global_batch, info.ranks, plan.shares);
    greedy_shares(units, times, plan.shares);
    std::size_t first = 0;  // the rest that is no whole micro-batch goes where it ends first
    for (std::size_t r = 1; r < times.size(); ++r)
      if (static_cast<double>(plan.shares[r] + 1) * times[r] <
          static_cast<double>(plan.shares[first] + 1) * times[first])
        first = r;
    for (std::int64_t& share : plan.shares) share *= unit_;
    plan.shares[first] += info.global_batch % unit_;
  }

  void observe(std::int64_t step, std::span<const RankEntry> entries) override {
    speeds_.observe(entries);
    if (step >= next_from_) times_ = next_;
    if (step % kEvery != 0 || speeds_.rounds() < kEvery) return;
    const bool slow = lasting();
    calm_ = slow ? 0 : calm_ + 1;
    if (slow) decide(step, speeds_.unit_s());
    if (!slow && calm_ >= kCalmDecisions && !next_.empty()) decide(step, {});
  }

  std::string news() override { return std::exchange(news_, ""); }

  std::string save() const override {
    return nlohmann::json{{"speeds", speeds_.save()}, {"times", times_}, {"next", next_},
                          {"from", next_from_},       {"calm", calm_}}
        .dump();
  }
  void load(const std::string& state) override {
    const auto json = nlohmann::json::parse(state);
    speeds_.load(json["speeds"]);
    times_ = json["times"].get<std::vector<double>>();
    next_ = json["next"].get<std::vector<double>>();
    next_from_ = json["from"];
    calm_ = json["calm"];
  }

 private:
  /// Speeds differ for good: one rank is slower than the median again and again. Where shares are
  /// uneven already, so are micro-batch times, since those do not depend on shares.
  bool lasting() const {
    for (int r = 0; r < static_cast<int>(speeds_.unit_s().size()); ++r)
      if (speeds_.persistence(r) >= kPersistent) return true;
    return false;
  }

  void decide(std::int64_t step, std::vector<double> times) {
    times_ = next_;
    next_ = std::move(times);
    next_from_ = step + kNotice;
    if (next_.empty()) {
      news_ = fmt::format("balance: all ranks are equally fast again, even shares from step {}",
                          next_from_);
      return;
    }
    std::vector<double> relative;
    const double best = *std::ranges::min_element(next_);
    for (const double time : next_) relative.push_back(time / best);
    const std::string text = fmt::format("{:.2f}", fmt::join(relative, ", "));
    if (std::exchange(told_, text) != text)
      news_ = fmt::format("balance: from step {} shares follow the measured times by rank, {} times "
                          "the fastest",
                          next_from_, text);
  }

  std::int64_t unit_;
  RankSpeeds speeds_;
  std::vector<double> times_, next_;  ///< of a micro-batch, in force and decided; empty: even
  std::int64_t next_from_ = 0;
  int calm_ = 0;
  std::string news_, told_;
};

}  // namespace

std::unique_ptr<SyncPolicy> make_balance(const PolicyConfig& config) {
  return std::make_unique<Balance>(config);
}

}  // namespace sidestep
