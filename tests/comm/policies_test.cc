// What each preset decides, fed with made-up measurements.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "comm/policies/policies.h"
#include "comm/sync_policy.h"
#include "core/base/error.h"

namespace sidestep {
namespace {

using Shares = std::vector<std::int64_t>;
constexpr int kRanks = 4;
constexpr std::int64_t kBatch = 128, kUnit = 4;

PolicyConfig config_of(const std::string& name) {
  return {.name = name, .ranks = kRanks, .batch = kBatch, .micro_batch = kUnit, .seed = 5};
}

WorkPlan plan_of(SyncPolicy& policy, std::int64_t step, std::int64_t batch = kBatch,
                 std::int64_t available = 60000) {
  WorkPlan plan;
  policy.plan({.step = step, .global_batch = batch, .available = available, .rank = 0, .ranks = kRanks},
              plan);
  return plan;
}

std::int64_t total(const Shares& shares) {
  return std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
}

/// Rounds in which rank r needs unit_ms(r, step) for each of its micro-batches.
void observe(SyncPolicy& policy, std::int64_t first, std::int64_t last,
             const std::function<double(int, std::int64_t)>& unit_ms, std::int64_t units = 8) {
  for (std::int64_t step = first; step <= last; ++step) {
    std::vector<RankEntry> entries(kRanks);
    for (int r = 0; r < kRanks; ++r)
      entries[static_cast<std::size_t>(r)] = {
          .samples = units * kUnit,
          .units = units,
          .begun = 1,
          .compute_ns = static_cast<std::int64_t>(unit_ms(r, step) * 1e6) * units,
          .compute_units = units};
    policy.observe(step, entries);
  }
}

double all_equal(int, std::int64_t) { return 10; }
double first_slow(int rank, std::int64_t) { return rank == 0 ? 15 : 10; }

// ---- balance

TEST(Balance, SharesOfEqualRanksAreThoseOfBsp) {
  const auto balance = make_policy(config_of("balance"));
  observe(*balance, 1, 200, all_equal);
  for (const std::int64_t batch : {kBatch, std::int64_t{97}, std::int64_t{3}})
    EXPECT_EQ(plan_of(*balance, 300, batch).shares, plan_of(*make_policy(config_of("bsp")), 300, batch).shares);
}

TEST(Balance, OneSlowStepChangesNothing) {
  const auto balance = make_policy(config_of("balance"));
  observe(*balance, 1, 100, [](int rank, std::int64_t step) { return rank == 2 && step == 70 ? 200.0 : 10.0; });
  EXPECT_EQ(plan_of(*balance, 140).shares, (Shares{32, 32, 32, 32}));
  EXPECT_EQ(balance->news(), "");
}

TEST(Balance, ARankThatIsSlowForGoodGetsFewerMicroBatches) {
  const auto balance = make_policy(config_of("balance"));
  observe(*balance, 1, 32, first_slow);
  EXPECT_THAT(balance->news(), ::testing::HasSubstr("1.50"));
  const Shares shares = plan_of(*balance, 60).shares;
  EXPECT_EQ(shares, (Shares{24, 36, 36, 32}));
  for (const std::int64_t share : shares) EXPECT_EQ(share % kUnit, 0);
  for (const std::int64_t batch : {std::int64_t{127}, std::int64_t{50}, std::int64_t{16}, std::int64_t{7}, std::int64_t{1}}) {
    const Shares tail = plan_of(*balance, 60, batch).shares;
    EXPECT_EQ(total(tail), batch);
    EXPECT_GE(*std::ranges::min_element(tail), 0);
  }
}

TEST(Balance, ADecisionIsAnnouncedAheadOfItsStep) {
  const auto balance = make_policy(config_of("balance"));
  observe(*balance, 1, 16, first_slow);
  EXPECT_EQ(plan_of(*balance, 16 + kNotice - 1).shares, (Shares{32, 32, 32, 32}));
  EXPECT_EQ(plan_of(*balance, 16 + kNotice).shares, (Shares{24, 36, 36, 32}));
}

TEST(Balance, GoesBackWhenTheRankIsFastAgain) {
  const auto balance = make_policy(config_of("balance"));
  observe(*balance, 1, 64, first_slow);
  ASSERT_NE(plan_of(*balance, 90).shares, (Shares{32, 32, 32, 32}));
  observe(*balance, 65, 260, all_equal);
  EXPECT_EQ(plan_of(*balance, 300).shares, (Shares{32, 32, 32, 32}));
}

// ---- drop

TEST(Drop, CalibratesItsCapAndRaisesItWhenTooMuchIsLeftOut) {
  const auto drop = make_policy(config_of("drop"));
  EXPECT_TRUE(std::isinf(plan_of(*drop, 1).stop_after_s));
  observe(*drop, 1, 50, [](int rank, std::int64_t) { return rank == 0 ? 14.0 : 10.0; });
  EXPECT_THAT(drop->news(), ::testing::HasSubstr("drop: a rank begins no micro-batch after"));
  EXPECT_TRUE(std::isinf(plan_of(*drop, 50 + kNotice - 1).stop_after_s));
  const double tau = plan_of(*drop, 50 + kNotice).stop_after_s;
  EXPECT_GT(tau, 0.06);
  EXPECT_LE(tau, 0.085);
  EXPECT_EQ(plan_of(*drop, 80).shares, (Shares{32, 32, 32, 32}));
  observe(*drop, 51, 51 + 4 * 64, all_equal, 6);  // a quarter is left out
  EXPECT_NEAR(plan_of(*drop, 51 + 4 * 64 + kNotice).stop_after_s / tau, 1.1, 0.12);
}

TEST(Drop, AGivenCapIsKept) {
  PolicyConfig config = config_of("drop");
  config.drop_tau = 0.05;
  const auto drop = make_policy(config);
  observe(*drop, 1, 200, first_slow, 2);
  EXPECT_EQ(plan_of(*drop, 300).stop_after_s, 0.05);
}

// ---- window

TEST(Window, EveryRankGetsWhatFitsIntoTheTime) {
  PolicyConfig config = config_of("window");
  config.micro_batch = 32;
  config.window = 10;
  const auto window = make_policy(config);
  EXPECT_EQ(plan_of(*window, 1).shares, (Shares{320, 320, 320, 320}));
  EXPECT_TRUE(std::isinf(plan_of(*window, 1).stop_after_s));
  observe(*window, 1, 3, [](int rank, std::int64_t) { return rank == 0 ? 20.0 : 10.0; }, 10);
  const WorkPlan plan = plan_of(*window, 5);
  EXPECT_NEAR(plan.stop_after_s, 0.1, 1e-9);
  EXPECT_EQ(plan.shares, (Shares{6 * 32, 11 * 32, 11 * 32, 11 * 32}));
  EXPECT_EQ(total(plan_of(*window, 5, kBatch, 700).shares), 700);
}

TEST(Window, FastRanksDoAtMostFourTimesTheStepsOfASlowOne) {
  PolicyConfig config = config_of("window");
  config.micro_batch = 1;
  const auto window = make_policy(config);
  observe(*window, 1, 3, [](int rank, std::int64_t) { return rank == 0 ? 100.0 : 1.0; });
  const Shares shares = plan_of(*window, 5).shares;
  EXPECT_EQ(shares[1], 4 * shares[0]);
}

TEST(Window, TheLastResultMayBeInOrNot) {
  const auto early = make_policy(config_of("window")), late = make_policy(config_of("window"));
  observe(*early, 1, 5, first_slow);
  observe(*late, 1, 5, first_slow);
  observe(*late, 6, 6, [](int, std::int64_t) { return 30.0; });
  EXPECT_EQ(plan_of(*early, 7).stop_after_s, plan_of(*late, 7).stop_after_s);
  EXPECT_NE(plan_of(*late, 8).stop_after_s, plan_of(*late, 7).stop_after_s);
}

// ---- quorum family

TEST(QuorumPresets, RulesOfEachPreset) {
  const auto rule = [](PolicyConfig config) { return make_policy(config)->rule(9); };
  const RoundRule backup = rule(config_of("backup"));
  EXPECT_EQ(backup.quorum, 3);
  EXPECT_FALSE(backup.carry);
  EXPECT_EQ(backup.divisor, Divisor::participants);
  const RoundRule solo = rule(config_of("solo"));
  EXPECT_EQ(solo.quorum, 1);
  EXPECT_TRUE(solo.carry);
  EXPECT_EQ(solo.max_age, 32);
  EXPECT_EQ(solo.divisor, Divisor::nominal);
  EXPECT_EQ(rule(config_of("ssp")).max_age, 3);
  PolicyConfig all = config_of("ssp");
  all.quorum = kRanks;
  EXPECT_EQ(rule(all).quorum, 0);
  PolicyConfig discard = config_of("quorum");
  discard.late = "discard";
  EXPECT_EQ(rule(discard).divisor, Divisor::participants);
}

TEST(QuorumPresets, TheInitiatorIsDrawnForEachRoundAndAlikeEverywhere) {
  const auto one = make_policy(config_of("majority")), other = make_policy(config_of("majority"));
  std::vector<int> drawn(kRanks);
  for (std::int64_t round = 1; round <= 400; ++round) {
    const int initiator = one->rule(round).initiator;
    ASSERT_EQ(initiator, other->rule(round).initiator);
    ++drawn.at(static_cast<std::size_t>(initiator));
  }
  for (const int count : drawn) EXPECT_NEAR(count, 100, 40);
}

TEST(QuorumPresets, SilenceIsAShareOfTheMeasuredStep) {
  PolicyConfig config = config_of("quorum");
  config.silence = 0.05;
  const auto quorum = make_policy(config);
  EXPECT_EQ(quorum->rule(1).quorum, 0) << "all ranks until times are known";
  observe(*quorum, 1, 10, first_slow);
  EXPECT_EQ(quorum->rule(11).quorum, 2);
  EXPECT_NEAR(quorum->rule(11).silence_s, 0.05 * 0.08, 1e-6);
  EXPECT_THAT(quorum->news(), ::testing::HasSubstr("quorum: a round closes"));
}

// ---- all

TEST(Policies, KnobsThatCannotHoldNameTheirOption) {
  const auto expect_named = [](PolicyConfig config, const char* option) {
    try {
      make_policy(config);
      ADD_FAILURE() << option;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::settings);
      EXPECT_THAT(e.what(), ::testing::HasSubstr(option));
    }
  };
  PolicyConfig quorum = config_of("quorum");
  quorum.quorum = 5;
  expect_named(quorum, "--quorum");
  PolicyConfig backup = config_of("backup");
  backup.backup = 4;
  expect_named(backup, "--backup");
  PolicyConfig easgd = config_of("easgd");
  easgd.easgd_alpha = 0.3;
  expect_named(easgd, "--easgd-alpha");
}

TEST(Policies, ModelPresetsAndTheirOptions) {
  const auto rule = [](PolicyConfig config) { return make_policy(config)->model_rule(); };
  EXPECT_EQ(rule(config_of("local")).steps, 8);
  EXPECT_EQ(rule(config_of("local")).local_state, LocalState::reset);
  EXPECT_EQ(rule(config_of("diloco")).local_state, LocalState::keep);
  EXPECT_TRUE(rule(config_of("diloco")).outer.nesterov);
  EXPECT_TRUE(rule(config_of("slowmo")).outer.by_lr);
  EXPECT_TRUE(rule(config_of("selsync")).vote);
  EXPECT_NEAR(rule(config_of("easgd")).elastic_alpha, 0.9 / kRanks, 1e-12);
  PolicyConfig bmuf = config_of("bmuf");
  bmuf.sync_every = 20;
  bmuf.outer_momentum = 0.75;
  bmuf.outer_lr = 0.9;
  bmuf.nesterov = "on";
  bmuf.local_state = "average";
  EXPECT_EQ(rule(bmuf).steps, 20);
  EXPECT_EQ(rule(bmuf).outer.momentum, 0.75);
  EXPECT_EQ(rule(bmuf).outer.lr, 0.9);
  EXPECT_TRUE(rule(bmuf).outer.nesterov);
  EXPECT_EQ(rule(bmuf).local_state, LocalState::average);
}

class EveryPolicy : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, EveryPolicy, ::testing::ValuesIn(policy_names()),
                         [](const auto& param) { return param.param; });

TEST_P(EveryPolicy, SavedStatePlansAlike) {
  const auto whole = make_policy(config_of(GetParam()));
  observe(*whole, 1, 70, first_slow);
  const auto resumed = make_policy(config_of(GetParam()));
  if (const std::string state = whole->save(); !state.empty()) {
    EXPECT_EQ(state.find('\n'), std::string::npos);
    resumed->load(state);
  }
  for (std::int64_t step = 71; step <= 140; ++step) {
    ASSERT_EQ(plan_of(*whole, step).shares, plan_of(*resumed, step).shares) << step;
    ASSERT_EQ(plan_of(*whole, step).stop_after_s, plan_of(*resumed, step).stop_after_s) << step;
    ASSERT_EQ(whole->rule(step).silence_s, resumed->rule(step).silence_s) << step;
    observe(*whole, step, step, first_slow);
    observe(*resumed, step, step, first_slow);
  }
}

TEST_P(EveryPolicy, SharesAddUp) {
  const auto policy = make_policy(config_of(GetParam()));
  observe(*policy, 1, 40, first_slow);
  for (const std::int64_t batch : {std::int64_t{1}, std::int64_t{5}, std::int64_t{100}, kBatch}) {
    const Shares shares = plan_of(*policy, 60, batch, batch).shares;
    EXPECT_EQ(total(shares), batch);
  }
}

}  // namespace
}  // namespace sidestep
