// Drop: a rank that has computed for tau begins no further micro-batch (DropCompute, Giladi et al.
// 2023). The sum is divided by the samples that took part; what was left out is served later.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "comm/drop_tau.h"
#include "comm/policies/policies.h"
#include "comm/rank_speeds.h"

namespace sidestep {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kFirst = 50, kEvery = 500;  ///< rounds until calibration, and between them
constexpr std::int64_t kJudged = 64;               ///< rounds over which the drop share is taken

class Drop final : public SyncPolicy {
 public:
  explicit Drop(const PolicyConfig& config)
      : config_(config),
        speeds_(config.ranks),
        tau_(config.drop_tau > 0 ? config.drop_tau : kInfinity),
        next_(tau_) {}

  std::string_view name() const override { return "drop"; }
  Family family() const override { return Family::gradient; }
  bool leaves_out() const override { return true; }

  void plan(const StepInfo& info, WorkPlan& plan) override {
    even_shares(info.global_batch, info.ranks, plan.shares);
    plan.stop_after_s = info.step >= next_from_ ? next_ : tau_;
  }

  void observe(std::int64_t step, std::span<const RankEntry> entries) override {
    speeds_.observe(entries);
    if (config_.drop_tau > 0) return;
    if (step >= next_from_) tau_ = next_;
    std::int64_t applied = 0;
    for (const RankEntry& entry : entries) applied += entry.samples;
    applied_ += applied;
    if (++judged_ % kJudged == 0) judge(step);
    const std::int64_t rounds = speeds_.rounds();
    if (rounds != kFirst && (rounds < kEvery || rounds % kEvery != 0)) return;
    const std::int64_t share = config_.batch / config_.ranks;
    const std::int64_t unit = std::max<std::int64_t>(config_.micro_batch, 1);
    const DropChoice choice = choose_tau(speeds_.table(), (share + unit - 1) / unit, config_.drop_cap);
    decide(step, choice.tau_s);
    news_ = std::isfinite(choice.tau_s)
                ? fmt::format("drop: a rank begins no micro-batch after {:.1f} ms, from step {}; by "
                              "replay {:.2f} times the speed, {:.1f} % of the samples later",
                              1e3 * choice.tau_s, next_from_, choice.speedup, 100 * choice.dropped)
                : "drop: nothing to gain by leaving micro-batches out";
  }

  std::string news() override { return std::exchange(news_, ""); }

  std::string save() const override {
    return nlohmann::json{{"speeds", speeds_.save()},
                          {"tau", std::isfinite(tau_) ? tau_ : 0},
                          {"next", std::isfinite(next_) ? next_ : 0},
                          {"from", next_from_},
                          {"applied", applied_},
                          {"judged", judged_}}
        .dump();
  }
  void load(const std::string& state) override {
    const auto json = nlohmann::json::parse(state);
    const auto read = [&](const char* key) {
      const double value = json[key];
      return value > 0 ? value : kInfinity;
    };
    speeds_.load(json["speeds"]);
    if (config_.drop_tau <= 0) {
      tau_ = read("tau");
      next_ = read("next");
    }
    next_from_ = json["from"];
    applied_ = json["applied"];
    judged_ = json["judged"];
  }

 private:
  void decide(std::int64_t step, double tau) {
    tau_ = next_;
    next_ = tau;
    next_from_ = step + kNotice;
  }

  /// More was dropped than allowed: the times have changed since the calibration.
  void judge(std::int64_t step) {
    const double planned = static_cast<double>(config_.batch * kJudged);
    const double dropped = 1 - static_cast<double>(std::exchange(applied_, 0)) / planned;
    if (!std::isfinite(next_) || step < next_from_ + kJudged || dropped <= config_.drop_cap) return;
    decide(step, 1.1 * next_);
    news_ = fmt::format("drop: {:.1f} % left out, more than --drop-cap; the cap rises to {:.1f} ms",
                        100 * dropped, 1e3 * next_);
  }

  PolicyConfig config_;
  RankSpeeds speeds_;
  double tau_, next_;
  std::int64_t next_from_ = 0;
  std::int64_t applied_ = 0, judged_ = 0;
  std::string news_;
};

}  // namespace

std::unique_ptr<SyncPolicy> make_drop(const PolicyConfig& config) {
  return std::make_unique<Drop>(config);
}

}  // namespace sidestep
