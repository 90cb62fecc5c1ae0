// Window: every rank takes as many local steps as fit into a common time, then models are averaged,
// weighted by samples. Nobody waits for a slow rank, which simply does less.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "comm/policies/policies.h"
#include "comm/rank_speeds.h"

namespace sidestep {
namespace {

constexpr double kRoom = 1.1;      ///< samples set aside beyond what should fit
constexpr std::int64_t kMostApart = 4;  ///< largest ratio of local steps, else fast ranks rule

class Window final : public SyncPolicy {
 public:
  explicit Window(const PolicyConfig& config)
      : config_(config),
        unit_(std::max<std::int64_t>(config.micro_batch, 1)),
        speeds_(config.ranks) {}

  std::string_view name() const override { return "window"; }
  Family family() const override { return Family::model; }
  bool leaves_out() const override { return true; }
  ModelRule model_rule() const override {
    return {.steps = 1, .update_each_unit = true, .weighted = true};
  }

  void plan(const StepInfo& info, WorkPlan& plan) override {
    // The last round's result may or may not be in when the next is planned: it never counts.
    const Measured& known = observed_ >= info.step - 1 ? before_ : now_;
    plan.shares.resize(static_cast<std::size_t>(info.ranks));
    const double length = config_.window * known.clean_s;
    plan.stop_after_s = length > 0 ? length : std::numeric_limits<double>::infinity();
    const auto usual = static_cast<std::int64_t>(std::ceil(config_.window));
    for (std::size_t r = 0; r < plan.shares.size(); ++r)
      plan.shares[r] = length > 0 && known.unit_s[r] > 0
                           ? static_cast<std::int64_t>(std::ceil(kRoom * length / known.unit_s[r]))
                           : usual;
    const std::int64_t least = std::max<std::int64_t>(*std::ranges::min_element(plan.shares), 1);
    for (std::int64_t& share : plan.shares)
      share = std::clamp<std::int64_t>(share, 1, kMostApart * least) * unit_;
    if (std::accumulate(plan.shares.begin(), plan.shares.end(), std::int64_t{0}) > info.available)
      even_shares(info.available, info.ranks, plan.shares);
  }

  void observe(std::int64_t step, std::span<const RankEntry> entries) override {
    speeds_.observe(entries);
    before_ = std::exchange(now_, {speeds_.unit_s(), speeds_.clean_unit_s()});
    observed_ = step;
  }

  std::string save() const override {
    return nlohmann::json{{"speeds", speeds_.save()}, {"observed", observed_}}.dump();
  }
  void load(const std::string& state) override {
    const auto json = nlohmann::json::parse(state);
    speeds_.load(json["speeds"]);
    observed_ = json["observed"];
    before_ = now_ = {speeds_.unit_s(), speeds_.clean_unit_s()};
  }

 private:
  struct Measured {
    std::vector<double> unit_s;
    double clean_s = 0;
  };
  PolicyConfig config_;
  std::int64_t unit_;
  RankSpeeds speeds_;
  Measured before_, now_;
  std::int64_t observed_ = 0;
};

}  // namespace

std::unique_ptr<SyncPolicy> make_window(const PolicyConfig& config) {
  return std::make_unique<Window>(config);
}

}  // namespace sidestep
