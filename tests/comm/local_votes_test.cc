// SelSync: rounds of the local engine that end by a vote.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "comm/local_engine.h"
#include "tests/comm/local_runs.h"

namespace sidestep::testing {
namespace {

constexpr std::int64_t kLastStep = 60;
constexpr double kNever = 1e30;    ///< a change of the norm that no step reaches
constexpr double kAlways = 1e-30;  ///< one that every step reaches

struct VoteRun {
  int ranks = 3;
  double delta = kNever;
  std::int64_t most = 10;  ///< local steps in a row
  std::int64_t lag = 0;
  LocalOptions options{};
  std::int64_t spike_at = 0;  ///< the gradient of rank 1 is large in this step; 0: never
  int max_delay_us = 0;
  LocalState state = LocalState::reset;
};

/// The weights of a rank at each of its exchanges, and when they were.
struct Exchanges {
  std::vector<std::int64_t> steps;
  std::vector<Weights> weights;
};

LocalEngine::Options options_of(const VoteRun& run) {
  LocalEngine::Options options = with({.steps = run.most, .vote = true, .local_state = run.state});
  options.vote = {.ranks = run.ranks, .delta = run.delta};
  options.vote_lag = run.lag;
  return options;
}

/// Trains up to and with a step; the last round ends there.
void train_to(LocalRank& rank, const VoteRun& run, std::int64_t begin, std::int64_t end,
              Exchanges& into) {
  bool open = false;
  for (std::int64_t step = begin; step <= end; ++step) {
    if (open) {
      rank.next(step);
    } else {
      rank.begin(step);
    }
    const bool spike = step == run.spike_at && rank.rank() == 1;
    rank.step((8 * step + rank.rank()) * 4, 4, spike ? 30 : 1);
    open = !rank.engine().vote_to_end() && step < end;
    if (open) continue;
    rank.finish();
    into.steps.push_back(step);
    into.weights.push_back(rank.weights());
    EXPECT_GT(rank.engine().result(step).bytes,
              static_cast<std::int64_t>(rank.store().values().bytes()));
  }
}

/// Checks that all ranks take the same branch in each step and agree after each exchange.
Exchanges train_votes(const VoteRun& run) {
  std::vector<Exchanges> all(static_cast<std::size_t>(run.ranks));
  run_ranks(run.ranks,
            [&](auto comm) {
              LocalOptions options = run.options;
              options.max_delay_us = run.max_delay_us;
              LocalRank rank(std::move(comm), options, local(options_of(run)));
              train_to(rank, run, 1, kLastStep, all[static_cast<std::size_t>(rank.rank())]);
            },
            {.max_delay_us = run.max_delay_us, .seed = 1});
  for (const Exchanges& rank : all) {
    EXPECT_EQ(rank.steps, all[0].steps);
    EXPECT_EQ(rank.weights, all[0].weights);
  }
  return all[0];
}

/// The step of the exchange after the first forced ones.
std::int64_t next_after(const Exchanges& run, std::int64_t step) {
  for (const std::int64_t exchange : run.steps)
    if (exchange > step) return exchange;
  return 0;
}

Weights bsp_weights(int ranks, const LocalOptions& options) {
  Weights weights;
  run_ranks(ranks, [&](auto comm) {
    LocalRank rank(std::move(comm), options, bsp());
    for (std::int64_t step = 1; step <= kLastStep; ++step) {
      rank.begin(step);
      rank.step((8 * step + rank.rank()) * 4, 4);
      rank.finish();
    }
    if (rank.rank() == 0) weights = rank.weights();
  });
  return weights;
}

TEST(LocalVotes, AnExchangeAfterEveryStepEqualsBsp) {
  for (const bool with_momentum : {false, true}) {
    VoteRun run{.delta = kAlways, .state = LocalState::average};
    if (with_momentum) run.options = momentum(0.8);
    const Exchanges found = train_votes(run);
    EXPECT_EQ(found.steps.size(), static_cast<std::size_t>(kLastStep));
    expect_near(found.weights.back(), bsp_weights(3, run.options));
  }
}

TEST(LocalVotes, WithoutVotesModelsAreAveragedEverySoManySteps) {
  const VoteRun run{.most = 10};
  const Exchanges found = train_votes(run);
  // The first steps are forced, then every ten.
  std::vector<std::int64_t> expected;
  for (std::int64_t step = 1; step <= SelSyncVote::kForced; ++step) expected.push_back(step);
  for (const std::int64_t step : {35, 45, 55, 60}) expected.push_back(step);
  ASSERT_EQ(found.steps, expected);

  // The same as periodic averaging with these rounds.
  Weights periodic;
  run_ranks(3, [&](auto comm) {
    LocalRank rank(std::move(comm), {}, local(ModelRule{}));
    std::int64_t step = 0;
    for (const std::int64_t end : expected) {
      for (bool first = true; step < end; first = false) {
        ++step;
        if (first) {
          rank.begin(step);
        } else {
          rank.next(step);
        }
        rank.step((8 * step + rank.rank()) * 4, 4);
      }
      rank.finish();
    }
    if (rank.rank() == 0) periodic = rank.weights();
  });
  EXPECT_EQ(found.weights.back(), periodic);
}

TEST(LocalVotes, ASpikeOnOneRankCallsAllToExchange) {
  VoteRun run{.delta = 5, .most = 100};
  EXPECT_EQ(next_after(train_votes(run), SelSyncVote::kForced), kLastStep);
  run.spike_at = 40;
  EXPECT_EQ(next_after(train_votes(run), SelSyncVote::kForced), 40);
}

TEST(LocalVotes, ALaggedVoteIsObeyedLater) {
  VoteRun run{.delta = 5, .most = 100, .lag = 3};
  run.spike_at = 40;
  EXPECT_EQ(next_after(train_votes(run), SelSyncVote::kForced + run.lag), 40 + run.lag);
}

TEST(LocalVotes, DelaysChangeNoBit) {
  for (const std::int64_t lag : {0, 2}) {
    VoteRun run{.delta = 0.004, .most = 100, .lag = lag};
    const Exchanges expected = train_votes(run);
    EXPECT_LT(expected.steps.size(), static_cast<std::size_t>(kLastStep));
    run.max_delay_us = 200;
    const Exchanges found = train_votes(run);
    EXPECT_EQ(found.steps, expected.steps);
    EXPECT_EQ(found.weights, expected.weights);
  }
}

TEST(LocalVotes, ARankWithoutSamplesWantsNoExchange) {
  run_ranks(2, [](auto comm) {
    const VoteRun run{.ranks = 2, .delta = kAlways};
    LocalRank rank(std::move(comm), {}, local(options_of(run)));
    rank.begin(1);
    rank.step(0, 0);
    EXPECT_FALSE(rank.engine().vote_to_end());
    rank.next(2);
    rank.step(0, rank.rank() == 1 ? 4 : 0);
    EXPECT_TRUE(rank.engine().vote_to_end());
    rank.finish();
    EXPECT_EQ(rank.engine().result(2).samples, 4);
  });
}

TEST(LocalVotes, SavedVotesGoOn) {
  for (const std::int64_t lag : {0, 3}) {
    const VoteRun run{.ranks = 2, .delta = 0.004, .most = 100, .lag = lag};
    run_ranks(2, [&](auto comm) {
      auto again = comm->duplicate();
      Exchanges expected, found;
      std::string votes;
      Weights values;
      {
        LocalRank rank(std::move(comm), {}, local(options_of(run)));
        auto& engine = static_cast<LocalEngine&>(rank.engine());
        train_to(rank, run, 1, 33, found);
        rank.engine().quiesced().wait();
        votes = engine.save_votes();
        const float* const w = rank.store().values().template as<float>();
        values.assign(w, w + rank.store().values().numel());
        train_to(rank, run, 34, kLastStep, expected);
      }
      LocalRank rank(std::move(again), {}, local(options_of(run)));
      std::copy(values.begin(), values.end(), rank.store().values().template as<float>());
      static_cast<LocalEngine&>(rank.engine()).load_votes(votes);
      found = {};
      train_to(rank, run, 34, kLastStep, found);
      EXPECT_EQ(found.steps, expected.steps);
      EXPECT_EQ(found.weights, expected.weights);
      EXPECT_LT(found.steps.size(), 27u);  // some steps exchange and some do not
    });
  }
}

}  // namespace
}  // namespace sidestep::testing
