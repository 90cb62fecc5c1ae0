// The presets whose rounds may close without some ranks. One row each; sources are named in the
// README's table of policies.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/policies/policies.h"
#include "comm/rank_speeds.h"
#include "core/base/error.h"
#include "core/base/rng.h"

namespace sidestep {
namespace {

constexpr std::int64_t kMeasured = 4;  ///< rounds of all ranks, to know a step's time

struct Row {
  const char* name;
  bool carry;
  int max_age;
  bool draws;    ///< an initiator is drawn for each round
  bool silence;  ///< waits for silence after the quorum
};
constexpr Row kRows[] = {
    {"backup", false, 0, false, false}, {"quorum", true, 4, false, true},
    {"majority", true, 4, true, false}, {"solo", true, 32, false, false},
    {"ssp", true, 3, false, false},
};

int quorum_from(const PolicyConfig& c) {
  if (c.quorum > c.ranks)
    fail(Exit::settings, fmt::format("--quorum: expected at most the {} ranks of this job, found {}",
                                     c.ranks, c.quorum));
  if (c.name == "backup") {
    if (c.backup >= c.ranks)
      fail(Exit::settings,
           fmt::format("--backup: expected fewer than the {} ranks of this job, found {}", c.ranks,
                       c.backup));
    return static_cast<int>(c.ranks - c.backup);
  }
  if (c.quorum > 0) return static_cast<int>(c.quorum);
  return c.name == "quorum" ? (c.ranks + 1) / 2 : 1;
}

class QuorumPreset final : public SyncPolicy {
 public:
  QuorumPreset(const PolicyConfig& config, const Row& row)
      : config_(config), row_(row), speeds_(config.ranks) {
    rule_.quorum = quorum_from(config);
    if (rule_.quorum >= config.ranks) rule_.quorum = 0;
    rule_.carry = config.late == "auto" ? row.carry : config.late == "carry";
    rule_.max_age = config.max_age > 0 ? static_cast<int>(config.max_age) : row.max_age;
    if (!rule_.carry) rule_.max_age = 0;
    rule_.age_weight = static_cast<float>(config.age_weight);
    rule_.divisor = rule_.carry ? Divisor::nominal : Divisor::participants;
  }

  std::string_view name() const override { return row_.name; }
  Family family() const override { return Family::quorum; }
  void plan(const StepInfo& info, WorkPlan& plan) override {
    even_shares(info.global_batch, info.ranks, plan.shares);
  }

  RoundRule rule(std::int64_t round) override {
    RoundRule rule = rule_;
    if (row_.draws && rule.quorum != 0) {
      const std::uint64_t key = rng_key(config_.seed, "initiator");
      rule.initiator = static_cast<int>(random_below(key, static_cast<std::uint64_t>(round),
                                                     static_cast<std::uint64_t>(config_.ranks)));
    }
    if (!row_.silence || rule.quorum == 0) return rule;
    rule.silence_s = config_.silence * speeds_.step_s();
    if (speeds_.rounds() < kMeasured) rule.quorum = 0;
    return rule;
  }

  void observe(std::int64_t, std::span<const RankEntry> entries) override {
    speeds_.observe(entries);
    if (row_.silence && rule_.quorum != 0 && speeds_.rounds() == kMeasured)
      news_ = fmt::format("{}: a round closes {:.1f} ms after the last arrival, once {} ranks are "
                          "there",
                          row_.name, 1e3 * config_.silence * speeds_.step_s(), rule_.quorum);
  }
  std::string news() override { return std::exchange(news_, ""); }
  std::string save() const override { return speeds_.save(); }
  void load(const std::string& state) override { speeds_.load(state); }

 private:
  PolicyConfig config_;
  const Row& row_;
  RoundRule rule_;
  RankSpeeds speeds_;
  std::string news_;
};

}  // namespace

std::unique_ptr<SyncPolicy> make_quorum_preset(const PolicyConfig& config) {
  const auto row = std::ranges::find(kRows, config.name, [](const Row& r) { return std::string(r.name); });
  check(row != std::end(kRows), "a quorum preset is in the table");
  return std::make_unique<QuorumPreset>(config, *row);
}

}  // namespace sidestep
