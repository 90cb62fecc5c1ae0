#include "comm/selsync_vote.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/base/rng.h"

namespace sidestep {
namespace {

constexpr int kSteps = 4000;

/// Squared norms of gradients whose norm decays slowly under relative noise.
double n2(std::uint64_t seed, int step, double noise) {
  const double norm = std::exp(-step / 4000.0) *
                      std::abs(1 + noise * static_cast<double>(random_normal(rng_key(seed, "norm"),
                                                                             static_cast<std::uint64_t>(step))));
  return norm * norm;
}

double rate(const SelSyncVote::Config& config, double noise, int from, std::uint64_t seed = 1) {
  SelSyncVote vote(config);
  int yes = 0;
  for (int step = 0; step < kSteps; ++step) {
    const bool wants = vote.vote(n2(seed, step, noise));
    if (step >= from && wants) ++yes;
  }
  return static_cast<double>(yes) / (kSteps - from);
}

/// The table of the metric that is used here: 16 ranks, so smoothing 0.16.
TEST(SelSyncVote, VotesAsOftenAsTheRecursiveMeanShould) {
  EXPECT_NEAR(rate({.ranks = 16, .delta = 0.1}, 0.3, 25), 0.24, 0.08);
  EXPECT_NEAR(rate({.ranks = 16, .delta = 0.25}, 0.3, 25), 0.038, 0.025);
  EXPECT_LT(rate({.ranks = 16, .delta = 0.25}, 0.1, 25), 0.01);
}

TEST(SelSyncVote, TheFirstStepsAlwaysExchange) {
  SelSyncVote vote({.ranks = 4, .delta = 1e9});
  for (std::int64_t step = 0; step < SelSyncVote::kForced; ++step) EXPECT_TRUE(vote.vote(1));
  EXPECT_FALSE(vote.vote(1));
}

TEST(SelSyncVote, DeltaIsChosenForTheWantedRate) {
  constexpr int kRanks = 8;
  for (const double wanted : {0.1, 0.3}) {
    std::vector<SelSyncVote> votes(kRanks, SelSyncVote({.ranks = kRanks, .rate = wanted}));
    int any = 0;
    for (int step = 0; step < kSteps; ++step) {
      bool one = false;
      for (int r = 0; r < kRanks; ++r) one |= votes[static_cast<std::size_t>(r)].vote(n2(static_cast<std::uint64_t>(r), step, 0.3));
      if (step >= SelSyncVote::kCalibrated && one) ++any;
    }
    const double got = static_cast<double>(any) / (kSteps - SelSyncVote::kCalibrated);
    EXPECT_GT(got, wanted / 2.5);
    EXPECT_LT(got, wanted * 2.5);
  }
}

TEST(SelSyncVote, ASpikeCallsForAnExchange) {
  SelSyncVote vote({.ranks = 8, .delta = 0.5});
  for (int step = 0; step < 100; ++step) vote.vote(1);
  EXPECT_FALSE(vote.vote(1));
  EXPECT_TRUE(vote.vote(100));
}

TEST(SelSyncVote, StepsWithoutSamplesLeaveEverything) {
  SelSyncVote vote({.ranks = 8, .delta = 0.5});
  for (int step = 0; step < 30; ++step) vote.vote(2);
  const std::string before = vote.save();
  EXPECT_FALSE(vote.vote(0));
  EXPECT_EQ(vote.save(), before);
}

TEST(SelSyncVote, ARestartVotesAlike) {
  for (const int at : {10, 100, 300}) {
    SelSyncVote whole({.ranks = 4, .rate = 0.2});
    for (int step = 0; step < at; ++step) whole.vote(n2(7, step, 0.3));
    SelSyncVote resumed({.ranks = 4, .rate = 0.2});
    resumed.load(whole.save());
    for (int step = at; step < 600; ++step)
      ASSERT_EQ(whole.vote(n2(7, step, 0.3)), resumed.vote(n2(7, step, 0.3))) << step;
  }
}

}  // namespace
}  // namespace sidestep
