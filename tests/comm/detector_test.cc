// Oracle 10: what the detector says of the injector's scenarios, on a simulated clock.
#include "comm/detector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iostream>

#include "comm/injector.h"
#include "core/base/rng.h"
#include "tests/harness/allocation_count.h"

namespace sidestep {
namespace {

using ::testing::HasSubstr;

constexpr int kUnits = 8;
constexpr double kStep = 0.1, kInput = 0.001, kTransfer = 0.005;  // seconds

/// Synchronous ranks whose times are the clean ones and what the injector adds.
class Cluster {
 public:
  Cluster(std::string_view scenario, std::uint64_t seed, int ranks,
          const Detector::Options& options = {})
      : injector(scenario, seed, ranks),
        detector([&] {
          auto o = options;
          o.ranks = ranks;
          return o;
        }()),
        seed_(seed),
        entries_(static_cast<std::size_t>(ranks)) {}

  Injector injector;
  Detector detector;
  std::vector<DetectorEvent> events;
  std::int64_t step = 0;
  /// The injector acts in steps (calm_before, calm_after].
  std::int64_t calm_before = 0, calm_after = 1'000'000;
  double own_noise = 0, hiccup = 0;  ///< normal noise, and rare longer steps (1 in 50, by so much)
  std::function<void(std::int64_t, std::vector<RankEntry>&)> change;

  void run(std::int64_t steps) {
    for (const std::int64_t end = step + steps; step < end;) round(++step);
  }
  std::vector<DetectorEvent> of(int rank, RankState state) const {
    std::vector<DetectorEvent> found;
    for (const DetectorEvent& e : events)
      if (e.rank == rank && e.state == state) found.push_back(e);
    return found;
  }

 private:
  void round(std::int64_t s) {
    const bool on = s > calm_before && s <= calm_after;
    double last = 0, factor = 1;
    std::vector<double> ready(entries_.size());
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const int r = static_cast<int>(i);
      double compute = 1, input = kInput;
      for (int u = 0; u < kUnits && on; ++u) compute += injector.compute(r, s, u, kUnits);
      const std::uint64_t key = rng_key(seed_, "machine", i, static_cast<std::uint64_t>(s));
      compute += own_noise * std::abs(static_cast<double>(random_normal(key, 0)));
      if (random_below(key, 1, 50) == 0) compute += hiccup;
      if (on) input += kStep * injector.loader(r, s);
      if (on) factor = std::max(factor, injector.comm_factor(r, s));
      entries_[i] = {
          .compute_ns = ns(compute * kStep), .compute_units = kUnits, .input_ns = ns(input)};
      ready[i] = compute * kStep + input;
      last = std::max(last, ready[i]);
    }
    for (std::size_t i = 0; i < entries_.size(); ++i)
      entries_[i].exchange_ns = ns(last - ready[i] + factor * kTransfer);
    if (change) change(s, entries_);
    detector.observe(s, entries_);
    for (const DetectorEvent& e : detector.take_events()) events.push_back(e);
  }
  static std::int64_t ns(double s) { return static_cast<std::int64_t>(s * 1e9); }

  std::uint64_t seed_;
  std::vector<RankEntry> entries_;
};

TEST(Detector, IsQuietOnACalmCluster) {
  for (const int ranks : {1, 2, 4, 8})
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      Cluster cluster("S0", seed, ranks);
      cluster.run(2000);
      EXPECT_TRUE(cluster.events.empty()) << ranks << " ranks, seed " << seed;
    }
}

TEST(Detector, IsQuietOnASharedMachine) {
  for (const int ranks : {2, 4, 8})
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      Cluster cluster("links=3", seed, ranks);
      cluster.own_noise = 0.05;
      cluster.hiccup = 0.5;
      cluster.run(2000);
      for (const DetectorEvent& e : cluster.events) ADD_FAILURE() << describe(e, "");
    }
}

TEST(Detector, DifferencesBelowHalfAMillisecondAreNothing) {
  Cluster cluster("", 1, 4);
  cluster.change = [](std::int64_t, std::vector<RankEntry>& entries) {
    for (RankEntry& e : entries)
      e = {.compute_ns = 800'000, .compute_units = 8, .exchange_ns = 1000};
    entries[1].compute_ns = 1'200'000;
    entries[2].input_ns = 400'000;
  };
  cluster.run(500);
  EXPECT_TRUE(cluster.events.empty());
}

TEST(Detector, FindsASlowNodeWithinTwoWindowsAndItsEnd) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Cluster cluster("S5,S0", seed, 8);
    cluster.calm_before = 400;
    cluster.calm_after = 800;
    cluster.run(1200);
    const auto slow = cluster.of(0, RankState::slow), calm = cluster.of(0, RankState::calm);
    ASSERT_EQ(slow.size(), 1u);
    EXPECT_LE(slow[0].step, 400 + 2 * Detector::Options{}.window);
    EXPECT_NEAR(static_cast<double>(slow[0].since_step), 401, 1);
    EXPECT_NEAR(slow[0].own_s, 1.5 * kStep / kUnits, 0.001);
    EXPECT_NEAR(slow[0].group_s, kStep / kUnits, 0.001);
    EXPECT_FALSE(slow[0].fleet);
    ASSERT_EQ(calm.size(), 1u);
    EXPECT_GT(calm[0].step, 800);
    EXPECT_LE(calm[0].step, 900);
    EXPECT_EQ(calm[0].before, RankState::slow);
    EXPECT_EQ(cluster.detector.state(0), RankState::calm);
    for (const DetectorEvent& e : cluster.events) EXPECT_EQ(e.rank, 0) << describe(e, "");
  }
  Cluster from_the_start("S5", 1, 2);
  from_the_start.run(2 * Detector::Options{}.window);
  EXPECT_EQ(from_the_start.detector.state(0), RankState::slow);
  EXPECT_EQ(from_the_start.detector.state(1), RankState::calm);
}

TEST(Detector, LatenessIsTheTimeByWhichARankIsAheadOfTheLast) {
  Cluster cluster("S5", 1, 4);
  cluster.run(64);
  EXPECT_NEAR(cluster.detector.lateness_s(0), 0.5 * kStep, 1e-6)
      << "the others wait so long for it";
  for (int r = 1; r < 4; ++r) EXPECT_NEAR(cluster.detector.lateness_s(r), 0, 1e-6);
}

/// Bursts of the injector and what the detector made of them.
struct Score {
  int bursts = 0, found = 0, alarms = 0, right = 0;
  double delay = 0;  ///< steps, sum over what was found
};

Score score_bursts(Cluster& cluster, int ranks, std::int64_t steps, int window) {
  cluster.run(steps);
  Score score;
  std::vector<std::vector<bool>> truth(static_cast<std::size_t>(ranks),
                                       std::vector<bool>(static_cast<std::size_t>(steps) + 1));
  for (std::int64_t s = 0; s <= steps; ++s)
    for (const int r : cluster.injector.delayed_ranks(s))
      truth[static_cast<std::size_t>(r)][static_cast<std::size_t>(s)] = true;
  for (int r = 0; r < ranks; ++r) {
    const std::vector<bool>& late = truth[static_cast<std::size_t>(r)];
    const std::vector<DetectorEvent> alarms = cluster.of(r, RankState::slow);
    for (std::int64_t s = 1; s <= steps; ++s) {
      const auto at = static_cast<std::size_t>(s);
      if (!late[at] || late[at - 1]) continue;
      std::int64_t end = s;
      while (end <= steps && late[static_cast<std::size_t>(end)]) ++end;
      if (end > steps) continue;  // cut off by the end of the run
      ++score.bursts;
      for (const DetectorEvent& e : alarms)
        if (e.step >= s && e.step < end) {
          ++score.found;
          score.delay += static_cast<double>(e.step - s);
          break;
        }
    }
    for (const DetectorEvent& e : alarms) {
      ++score.alarms;
      for (std::int64_t s = std::max<std::int64_t>(0, e.step - window); s <= e.step; ++s)
        if (late[static_cast<std::size_t>(s)]) {
          ++score.right;
          break;
        }
    }
  }
  return score;
}

TEST(Detector, FindsBurstsWithPrecisionAndRecall) {
  for (const int ranks : {4, 8})
    for (const bool shared_machine : {false, true}) {
      Score sum;
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        Cluster cluster("S7,S0", seed, ranks);
        if (shared_machine) cluster.own_noise = 0.05, cluster.hiccup = 0.5;
        const Score s = score_bursts(cluster, ranks, 20000, Detector::Options{}.window);
        ASSERT_GT(s.bursts, 30);
        EXPECT_GE(s.found, 0.9 * s.bursts) << ranks << " ranks, seed " << seed;
        EXPECT_GE(s.right, 0.9 * s.alarms) << ranks << " ranks, seed " << seed;
        sum.bursts += s.bursts, sum.found += s.found, sum.alarms += s.alarms, sum.right += s.right;
        sum.delay += s.delay;
      }
      std::cout << "bursts on " << ranks << " ranks of a " << (shared_machine ? "shared" : "calm")
                << " machine: recall " << sum.found << "/" << sum.bursts << ", precision "
                << sum.right << "/" << sum.alarms << ", found after " << sum.delay / sum.found
                << " steps\n";
    }
}

TEST(Detector, BlamesASlowLinkOnTheExchange) {
  Cluster cluster("S8,S0", 1, 4);
  cluster.calm_before = 50;  // a run's first steps are clean: they calibrate the injector
  cluster.calm_after = 2000;
  cluster.run(2500);
  ASSERT_EQ(cluster.events.size(), 2u);
  const DetectorEvent& slow = cluster.events[0];
  EXPECT_EQ(slow.state, RankState::link);
  EXPECT_EQ(slow.rank, -1);
  EXPECT_LE(slow.step, 50 + 2 * Detector::Options{}.window);
  EXPECT_EQ(slow.since_step, 51);
  EXPECT_NEAR(slow.own_s, 6 * kTransfer, 1e-6);
  EXPECT_NEAR(slow.group_s, kTransfer, 1e-6);
  EXPECT_EQ(cluster.events[1].state, RankState::calm);
  EXPECT_GT(cluster.events[1].step, 2000);
  for (int r = 0; r < 4; ++r) EXPECT_EQ(cluster.detector.state(r), RankState::calm);
}

TEST(Detector, ASlowRankIsNotASlowLink) {
  Cluster cluster("rank=1:x3", 1, 4);
  cluster.calm_before = 100;
  cluster.run(600);
  ASSERT_EQ(cluster.events.size(), 1u);
  EXPECT_EQ(cluster.events[0].rank, 1);
  EXPECT_EQ(cluster.events[0].state, RankState::slow);
  EXPECT_EQ(cluster.detector.state(-1), RankState::calm);
}

TEST(Detector, BlamesAWaitForInputOnTheLoader) {
  Cluster cluster("loader=2:+0.3,S0", 1, 4);
  cluster.calm_before = 100;
  cluster.calm_after = 400;
  cluster.run(600);
  ASSERT_EQ(cluster.events.size(), 2u);
  EXPECT_EQ(cluster.events[0].rank, 2);
  EXPECT_EQ(cluster.events[0].state, RankState::loader);
  EXPECT_EQ(cluster.events[0].since_step, 101);
  EXPECT_NEAR(cluster.events[0].own_s, 0.3 * kStep + kInput, 1e-6);
  EXPECT_NEAR(cluster.events[0].group_s, kInput, 1e-6);
  EXPECT_EQ(cluster.events[1].state, RankState::calm);
  EXPECT_EQ(cluster.events[1].before, RankState::loader);
}

TEST(Detector, HiccupsAndNoiseOfAllRanksAreJitterAtMost) {
  for (const char* scenario : {"S1,S0", "S2,S0", "S3", "S4"})
    for (const int ranks : {2, 4, 8})
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        Cluster cluster(scenario, seed, ranks);
        cluster.run(5000);
        for (const DetectorEvent& e : cluster.events)
          EXPECT_LE(e.state, RankState::jitter) << scenario << ": " << describe(e, "");
      }
  Cluster cluster("S1,S0", 1, 4);
  cluster.run(500);
  for (int r = 0; r < 4; ++r) EXPECT_FALSE(cluster.of(r, RankState::jitter).empty()) << r;
}

TEST(Detector, NamesAMixedFleetAndEachSlowRank) {
  for (const int ranks : {4, 8}) {
    Cluster cluster("S6,S0", 1, ranks);
    cluster.calm_after = 200;
    cluster.run(400);
    for (int r = 0; r < ranks; ++r) {
      const std::vector<DetectorEvent> slow = cluster.of(r, RankState::slow);
      ASSERT_EQ(slow.size(), r < ranks / 2 ? 0u : 1u);
      for (const DetectorEvent& e : slow) EXPECT_TRUE(e.fleet);
    }
    const std::vector<DetectorEvent> fleet = cluster.of(-1, RankState::slow);
    ASSERT_EQ(fleet.size(), 1u);
    EXPECT_TRUE(fleet[0].fleet);
    EXPECT_NEAR(fleet[0].own_s, 2 * kStep / kUnits, 0.001);
    EXPECT_EQ(cluster.of(-1, RankState::calm).size(), 1u);
  }
}

TEST(Detector, ARankThatMeasuresInFewRoundsIsJudgedByThose) {
  Cluster cluster("rank=3:x3", 1, 4);
  cluster.change = [](std::int64_t step, std::vector<RankEntry>& entries) {
    if (step % 3 != 0) entries[3] = {};
    if (step % 9 != 0 || step > 20) entries[2] = {};
  };
  cluster.run(100);
  EXPECT_EQ(cluster.detector.state(3), RankState::slow);
  for (int r = 0; r < 3; ++r) EXPECT_EQ(cluster.detector.state(r), RankState::calm);
}

TEST(Detector, MicroBatchesAreComparedAndNotSteps) {
  Cluster cluster("", 1, 4);
  cluster.change = [](std::int64_t, std::vector<RankEntry>& entries) {
    entries[1].compute_units *= 2;  // twice the share, in twice the time
    entries[1].compute_ns *= 2;
  };
  cluster.run(200);
  EXPECT_TRUE(cluster.events.empty());
}

TEST(Detector, AllocatesNothingBetweenEvents) {
  Cluster cluster("S5,S7", 1, 4);
  cluster.run(100);
  std::vector<RankEntry> entries(4, {.compute_ns = 80'000'000,
                                     .compute_units = 8,
                                     .input_ns = 1'000'000,
                                     .exchange_ns = 5'000'000});
  entries[0].compute_ns = 120'000'000;
  Detector& detector = cluster.detector;
  for (std::int64_t step = 101; step <= 300; ++step) detector.observe(step, entries);
  detector.take_events();
  double sum = 0;
  const std::int64_t before = testing::allocation_count();
  for (std::int64_t step = 301; step <= 500; ++step) {
    detector.observe(step, entries);
    if (!detector.take_events().empty()) ADD_FAILURE() << "an event at step " << step;
    for (int r = 0; r < 4; ++r) sum += cluster.injector.compute(r, step, 0, 8);
  }
  EXPECT_EQ(testing::allocation_count(), before);
  EXPECT_GT(sum, 0);
}

TEST(Detector, LinesNameRankHostPhaseAndNumbers) {
  EXPECT_EQ(
      describe({.step = 352,
                .rank = 1,
                .state = RankState::slow,
                .own_s = 0.0412,
                .group_s = 0.0204,
                .since_step = 320},
               "node3"),
      "rank 1 on node3 is slow since step 320: 41.2 ms a micro-batch in compute, the median of "
      "all ranks is 20.4 ms");
  EXPECT_EQ(describe({.rank = 0, .state = RankState::loader, .own_s = 0.03, .group_s = 0.001}, ""),
            "rank 0 waits for input since step 0: 30.0 ms a step in input, the median of the other "
            "ranks is 1.0 ms");
  EXPECT_THAT(describe({.rank = 2, .state = RankState::jitter}, "a"),
              HasSubstr("rank 2 on a is unsteady"));
  EXPECT_THAT(describe({.rank = 2, .before = RankState::slow}, "a"), HasSubstr("back to normal"));
  EXPECT_THAT(
      describe({.state = RankState::link, .own_s = 0.03, .group_s = 0.005}, ""),
      HasSubstr("the exchange between the ranks is slow since step 0: a transfer takes 30.0 ms"));
  EXPECT_THAT(describe({.state = RankState::slow, .fleet = true}, ""), HasSubstr("several ranks"));
}

}  // namespace
}  // namespace sidestep
