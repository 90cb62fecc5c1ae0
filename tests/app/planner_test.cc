// Every sample is computed once an epoch, whatever rounds leave out, and all ranks plan alike.
#include "app/planner.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <numeric>

#include "core/base/rng.h"

namespace sidestep {
namespace {

/// Even shares; of a family of one's choice.
class TestPolicy final : public SyncPolicy {
 public:
  TestPolicy(Family family, bool leaves_out) : family_(family), leaves_out_(leaves_out) {}
  std::string_view name() const override { return "test"; }
  Family family() const override { return family_; }
  bool leaves_out() const override { return leaves_out_; }
  void plan(const StepInfo& info, WorkPlan& plan) override {
    even_shares(info.global_batch, info.ranks, plan.shares);
  }

 private:
  Family family_;
  bool leaves_out_;
};

constexpr std::int64_t kSize = 211, kBatch = 32;

/// All ranks' planners of one job.
struct Job {
  Job(int ranks, Family family, bool leaves_out, Goal goal, bool rotated = false)
      : policy(family, leaves_out) {
    for (int r = 0; r < ranks; ++r)
      planners.push_back(std::make_unique<Planner>(Planner::Config{.policy = policy,
                                                                   .dataset_size = kSize,
                                                                   .batch = kBatch,
                                                                   .seed = 3,
                                                                   .rotated = rotated,
                                                                   .gives_back = leaves_out,
                                                                   .rank = r,
                                                                   .ranks = ranks,
                                                                   .lookahead = 4,
                                                                   .goal = goal,
                                                                   .unit_sizes = {5, 4, 2, 1}}));
  }
  int ranks() const { return static_cast<int>(planners.size()); }
  void start(const Position& position = {}, const std::vector<Range>& returned = {}) {
    for (auto& planner : planners) planner->start(position, returned);
  }
  void settle(std::int64_t step, const std::vector<RankEntry>& entries) {
    for (auto& planner : planners) planner->settle(step, entries);
  }
  /// Ids of each rank's range, after checking that all ranks planned the same.
  std::vector<std::vector<std::int64_t>> round(std::int64_t step) {
    std::vector<std::vector<std::int64_t>> ids;
    const PlannedRound& first = planners[0]->round(step);
    for (auto& planner : planners) {
      const PlannedRound& own = planner->round(step);
      EXPECT_EQ(own.shares, first.shares);
      EXPECT_EQ(own.block.ranges, first.block.ranges);
      EXPECT_EQ(own.seen_before, first.seen_before);
      ids.push_back(planner->own_samples(step));
    }
    return ids;
  }
  TestPolicy policy;
  std::vector<std::unique_ptr<Planner>> planners;
};

using Counts = std::map<std::int64_t, int>;  ///< how often each sample was applied

void expect_each_sample(const Counts& counts, int times) {
  EXPECT_EQ(std::ssize(counts), kSize);
  for (const auto& [id, count] : counts) EXPECT_EQ(count, times) << id;
}

/// Rounds as `drop` makes them: each rank applies a random part of its range.
Counts run_dropping(Job& job, std::int64_t& step, std::uint64_t seed, std::int64_t stop_at = 1 << 20) {
  Counts counts;
  for (; !job.planners[0]->finished() && step < stop_at; ++step) {
    EXPECT_TRUE(job.planners[0]->can_plan(step + 1));
    const auto ids = job.round(step + 1);
    std::vector<RankEntry> entries(ids.size());
    for (std::size_t r = 0; r < ids.size(); ++r) {
      const auto most = static_cast<std::uint64_t>(ids[r].size());
      const auto done = static_cast<std::int64_t>(
          most == 0 ? 0 : 1 + random_below(rng_key(seed, "drop", r), static_cast<std::uint64_t>(step), most));
      entries[r] = {.samples = done, .begun = 1};
      for (std::int64_t i = 0; i < done; ++i) ++counts[ids[r][static_cast<std::size_t>(i)]];
    }
    job.settle(step + 1, entries);
  }
  return counts;
}

TEST(Planner, RoundsThatLeaveSamplesOutServeThemBeforeTheEpochEnds) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Job job(3, Family::gradient, true, {.epochs = 2});
    job.start();
    std::int64_t step = 0;
    expect_each_sample(run_dropping(job, step, seed), 2);
    EXPECT_EQ(job.planners[0]->committed().samples_seen, 2 * kSize);
    EXPECT_EQ(job.planners[0]->committed().cursor, (Cursor{2, 0}));
  }
}

TEST(Planner, ARestartOnAnotherNumberOfRanksServesTheRest) {
  for (std::int64_t at = 1; at < 12; ++at) {
    Job job(4, Family::gradient, true, {.epochs = 1});
    job.start();
    std::int64_t step = 0;
    Counts counts = run_dropping(job, step, 7, at);
    Job resumed(2, Family::gradient, true, {.epochs = 1});
    resumed.start(job.planners[0]->committed(), job.planners[0]->returned());
    for (const auto& [id, count] : run_dropping(resumed, step, 8)) counts[id] += count;
    expect_each_sample(counts, 1);
  }
}

/// Rounds as the quorum family makes them: ranks begin or do not, come in time or late, and late work
/// is applied or thrown away.
TEST(Planner, WorkInFlightIsServedOnceWhetherItIsAppliedOrThrownAway) {
  struct Flight {
    std::int64_t round = 0;
    std::vector<std::int64_t> ids;
  };
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const bool carry = seed % 2 == 0;
    Job job(3, Family::quorum, true, {.epochs = 2});
    job.start();
    Counts counts;
    std::vector<Flight> flights(3);
    for (std::int64_t step = 1; !job.planners[0]->finished(); ++step) {
      const auto ids = job.round(step);
      const bool flush = job.planners[0]->round(step).hands_out_last;
      std::vector<RankEntry> entries(3);
      for (std::size_t r = 0; r < 3; ++r) {
        const auto draw = random_below(rng_key(seed, "quorum", r), static_cast<std::uint64_t>(step), 4);
        Flight& flight = flights[r];
        RankEntry& entry = entries[r];
        const bool deposits = flight.round > 0 && (flush || draw < 2);
        if (deposits) {
          entry.late_round = flight.round;
          entry.late_samples = std::ssize(flight.ids);
          entry.written_off = carry ? 0 : 1;
          if (carry)
            for (const std::int64_t id : flight.ids) ++counts[id];
          flight = {};
        }
        if (flight.round > 0) continue;  // still busy: has not begun this round
        entry.begun = 1;
        if (flush || draw % 2 == 0 || ids[r].empty()) {
          entry.samples = std::ssize(ids[r]);
          for (const std::int64_t id : ids[r]) ++counts[id];
        } else {
          flight = {step, ids[r]};
        }
      }
      job.settle(step, entries);
      ASSERT_LT(step, 1000);
    }
    expect_each_sample(counts, 2);
    EXPECT_EQ(job.planners[0]->committed().samples_seen, 2 * kSize);
  }
}

TEST(Planner, WithoutLeavingOutStepsAreKnownAheadOfResults) {
  Job job(2, Family::gradient, false, {.epochs = 1});
  job.start();
  Counts counts;
  const std::int64_t steps = (kSize + kBatch - 1) / kBatch;
  for (std::int64_t step = 1; step <= steps; ++step)
    for (const auto& ids : job.round(step))
      for (const std::int64_t id : ids) ++counts[id];
  expect_each_sample(counts, 1);
  EXPECT_FALSE(job.planners[0]->can_plan(steps + 1));
}

/// SelDP: a rank meets all samples within as many epochs as there are ranks, and each epoch all ranks
/// together meet each sample once.
TEST(Planner, RotatedOrderLetsEachRankMeetEverySample) {
  constexpr int kRanks = 3;
  Job job(kRanks, Family::model, false, {.epochs = kRanks}, true);
  job.start();
  std::vector<Counts> of_rank(kRanks);
  const std::int64_t per_epoch = (kSize + kBatch - 1) / kBatch;
  for (int epoch = 0; epoch < kRanks; ++epoch) {
    Counts counts;
    for (std::int64_t k = 1; k <= per_epoch; ++k) {
      const std::int64_t step = epoch * per_epoch + k;
      for (auto& planner : job.planners) planner->round(step);
      for (std::size_t r = 0; r < kRanks; ++r)
        for (const std::int64_t id : job.planners[r]->own_samples(step)) {
          ++counts[id];
          ++of_rank[r][id];
        }
      job.settle(step, std::vector<RankEntry>(kRanks));
    }
    expect_each_sample(counts, 1);
  }
  for (const Counts& counts : of_rank) expect_each_sample(counts, 1);
}

TEST(Planner, TheLoaderGetsTheSamplesInMicroBatches) {
  Job job(2, Family::gradient, false, {.epochs = 1});
  job.start();
  Planner& planner = *job.planners[1];
  std::map<std::int64_t, std::vector<std::int64_t>> loaded;
  planner.round(1);
  LoadRequest request;
  while (request.step < 5) {
    ASSERT_TRUE(planner.next_unit(request));
    EXPECT_TRUE(request.ids.size() == 5 || request.ids.size() == 1) << request.ids.size();
    auto& ids = loaded[request.step];
    ids.insert(ids.end(), request.ids.begin(), request.ids.end());
  }
  for (std::int64_t step = 1; step < 5; ++step) EXPECT_EQ(loaded[step], planner.own_samples(step));
  EXPECT_EQ(planner.units_of(16), (std::vector<std::int64_t>{5, 5, 5, 1}));
  EXPECT_EQ(planner.units_of(9), (std::vector<std::int64_t>{5, 4}));
  planner.close();
  EXPECT_FALSE(planner.next_unit(request));
}

TEST(Planner, ARankWithoutSamplesIsAskedForAnEmptyMicroBatch) {
  Job job(40, Family::gradient, false, {.steps = 1});
  job.start();
  LoadRequest request;
  request.ids = {1, 2, 3};
  job.planners[39]->round(1);
  ASSERT_TRUE(job.planners[39]->next_unit(request));
  EXPECT_TRUE(request.ids.empty());
}

}  // namespace
}  // namespace sidestep
