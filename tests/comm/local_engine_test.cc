// The local engine's arithmetic against the round engine and float64 simulations of all ranks.
#include "comm/local_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/comm/local_runs.h"

namespace sidestep::testing {
namespace {

using Vector = std::vector<double>;

// ---- float64 simulation

Vector initial() {
  Vector w(kLocalWeights);
  for (std::size_t i = 0; i < kLocalWeights; ++i) w[i] = local_weight(i);
  return w;
}

struct Replica {
  Vector w = initial();
  Vector v = Vector(kLocalWeights);

  void step(std::int64_t first, std::int64_t samples, double lr, double momentum, double limit) {
    if (samples == 0) return;
    Vector g(kLocalWeights);
    double squares = 0;
    for (std::size_t i = 0; i < kLocalWeights; ++i) {
      for (std::int64_t s = first; s < first + samples; ++s) {
        const double x = local_input(s, i);
        g[i] += (w[i] * x - static_cast<double>(local_target(s, i))) * x;
      }
      g[i] /= static_cast<double>(samples);
      squares += g[i] * g[i];
    }
    const double scale = limit > 0 ? std::min(1.0, limit / std::sqrt(squares)) : 1;
    for (std::size_t i = 0; i < kLocalWeights; ++i) {
      v[i] = momentum * v[i] + scale * g[i];
      w[i] -= lr * v[i];
    }
  }
};

struct Simulation {
  int ranks;
  Schedule schedule;
  LocalOptions options;
  double limit;
  std::vector<Replica> replicas;

  Simulation(int n, Schedule steps, const LocalOptions& with = {}, double clip = 0)
      : ranks(n),
        schedule(std::move(steps)),
        options(with),
        limit(clip),
        replicas(static_cast<std::size_t>(n)) {}

  /// Runs the local steps of a round; returns the samples of each rank.
  Vector local_steps(int round) {
    Vector samples(replicas.size());
    for (int r = 0; r < ranks; ++r) {
      const std::vector<std::int64_t> steps = schedule(r, round);
      for (std::size_t h = 0; h < steps.size(); ++h) {
        replicas[static_cast<std::size_t>(r)].step(first_sample(r, round, h), steps[h], options.lr,
                                                   options.optimizer.momentum, limit);
        samples[static_cast<std::size_t>(r)] += static_cast<double>(steps[h]);
      }
    }
    return samples;
  }

  /// Rounds in which `outer(w, G)` moves the common model; local momentum is reset after each.
  Vector run(const std::function<void(Vector&, const Vector&)>& outer, bool weighted = true) {
    Vector common = initial();
    for (int round = 0; round < kLocalRounds; ++round) {
      const Vector samples = local_steps(round);
      Vector change(kLocalWeights);
      double total = 0;
      for (std::size_t r = 0; r < replicas.size(); ++r) {
        const double weight = weighted ? samples[r] : samples[r] > 0;
        total += weight;
        for (std::size_t i = 0; i < kLocalWeights; ++i)
          change[i] += weight * (common[i] - replicas[r].w[i]);
      }
      for (double& x : change) x /= total;
      outer(common, change);
      for (Replica& replica : replicas) replica = {common, Vector(kLocalWeights)};
    }
    return common;
  }
};

void plain(Vector& w, const Vector& change) {
  for (std::size_t i = 0; i < w.size(); ++i) w[i] -= change[i];
}

// ---- averaging

TEST(LocalEngine, OneLocalStepEqualsBsp) {
  for (const std::vector<std::int64_t>& shares :
       {std::vector<std::int64_t>{6}, {6, 6}, {3, 3, 3, 3}, {7, 0, 5}, {1, 11}}) {
    const auto ranks = static_cast<int>(shares.size());
    expect_near(train(ranks, every_step(shares, 1), local(ModelRule{})),
                train(ranks, every_step(shares, 1), bsp()));
  }
}

/// The mean of the momenta obeys the recursion of the mean.
TEST(LocalEngine, OneLocalStepWithMomentumEqualsBsp) {
  const LocalOptions options = momentum(0.8);
  for (const LocalState state : {LocalState::keep, LocalState::average}) {
    expect_near(train(3, every_step({4, 4, 4}, 1), local({.local_state = state}), options),
                train(3, every_step({4, 4, 4}, 1), bsp(), options));
  }
  expect_near(
      train(3, every_step({7, 2, 3}, 1), local({.local_state = LocalState::average}), options),
      train(3, every_step({7, 2, 3}, 1), bsp(), options));
}

TEST(LocalEngine, SeveralLocalStepsAreWeightedBySamples) {
  const Schedule schedule = every_step({7, 2, 0, 5}, 3);
  Simulation simulation{4, schedule, momentum(0.5)};
  expect_near(train(4, schedule, local(ModelRule{}), momentum(0.5)), simulation.run(plain));
}

TEST(LocalEngine, UnweightedMeanCountsRanksThatWorked) {
  const Schedule schedule = every_step({7, 2, 0, 5}, 2);
  Simulation simulation{4, schedule};
  expect_near(train(4, schedule, local({.weighted = false})), simulation.run(plain, false));
}

TEST(LocalEngine, RanksMayTakeDifferentNumbersOfSteps) {
  const Schedule schedule = [](int rank, int round) {
    return std::vector<std::int64_t>(static_cast<std::size_t>(1 + (rank + round) % 4), 2 + rank);
  };
  Simulation simulation{3, schedule};
  expect_near(train(3, schedule, local(ModelRule{})), simulation.run(plain));
}

TEST(LocalEngine, EachLocalStepClipsItsOwnGradient) {
  const Schedule schedule = every_step({5, 3}, 2);
  Simulation simulation{2, schedule};
  simulation.limit = 0.5;
  LocalEngine::Options options = with({});
  options.clip_norm = simulation.limit;
  const Weights clipped = train(2, schedule, local(options));
  expect_near(clipped, simulation.run(plain), 2 * kLocalTolerance);
  EXPECT_NE(clipped, train(2, schedule, local(ModelRule{})));
}

// ---- outer optimizer

TEST(LocalEngine, BlockMomentumOfZeroIsLocalSgdBitForBit) {
  const Schedule schedule = every_step({5, 3}, 2);
  const Weights expected = train(2, schedule, local(ModelRule{}));
  for (const OuterRule outer : {OuterRule{.lr = 1, .momentum = 0, .nesterov = true},
                                OuterRule{.lr = 1, .momentum = 0, .by_lr = true}})
    EXPECT_EQ(train(2, schedule, local({.outer = outer})), expected);
}

TEST(LocalEngine, OuterMomentumFollowsItsRule) {
  constexpr double kZeta = 0.9, kMu = 0.6;
  const Schedule schedule = every_step({5, 3, 4}, 2);
  for (const bool nesterov : {false, true}) {
    for (const bool by_lr : {false, true}) {  // equal at a constant rate
      Simulation simulation{3, schedule};
      Vector m(kLocalWeights);
      const Vector expected = simulation.run([&](Vector& w, const Vector& change) {
        for (std::size_t i = 0; i < w.size(); ++i) {
          m[i] = kMu * m[i] + change[i];
          w[i] -= kZeta * (nesterov ? change[i] + kMu * m[i] : m[i]);
        }
      });
      const OuterRule outer{.lr = kZeta, .momentum = kMu, .nesterov = nesterov, .by_lr = by_lr};
      expect_near(train(3, schedule, local({.outer = outer})), expected, 2 * kLocalTolerance);
    }
  }
}

// ---- elastic averaging

constexpr double kAlpha = 0.3;
ModelRule elastic() {
  return {.elastic = true, .elastic_alpha = kAlpha, .local_state = LocalState::keep};
}

/// The textbook's synchronous form: C = C + alpha sum (x_i - C), x_i = x_i - alpha (x_i - C_old).
TEST(LocalEngine, ElasticAveragingIsTheTextbooks) {
  const Schedule schedule = every_step({4, 3, 5}, 2);
  Simulation simulation{3, schedule, momentum(0.5)};
  Vector centre = initial();
  for (int round = 0; round < kLocalRounds; ++round) {
    simulation.local_steps(round);
    for (std::size_t i = 0; i < kLocalWeights; ++i) {
      const double old = centre[i];
      for (Replica& replica : simulation.replicas) {
        centre[i] += kAlpha * (replica.w[i] - old);
        replica.w[i] -= kAlpha * (replica.w[i] - old);
      }
    }
  }
  std::vector<Weights> centres(3);
  run_ranks(3, [&](auto comm) {
    LocalRank rank(std::move(comm), momentum(0.5), local(elastic()));
    std::int64_t step = 0;
    for (int round = 0; round < kLocalRounds; ++round)
      run_round(rank, schedule(rank.rank(), round), round, step);
    const Weights own = rank.weights();
    const auto r = static_cast<std::size_t>(rank.rank());
    expect_near(own, simulation.replicas[r].w);
    rank.engine().show();
    centres[r] = rank.weights();
    rank.engine().hide();
    EXPECT_EQ(rank.weights(), own);
  });
  expect_near(centres[0], centre);
  EXPECT_EQ(centres[1], centres[0]);
  EXPECT_EQ(centres[2], centres[0]);
}

TEST(LocalEngine, WithAllWeightsAtTheCentreNothingMoves) {
  LocalOptions still;
  still.lr = 0;
  Weights expected(kLocalWeights);
  for (std::size_t i = 0; i < kLocalWeights; ++i) expected[i] = local_weight(i);
  EXPECT_EQ(train(3, every_step({2, 2, 2}, 1), local(elastic()), still), expected);
}

// ---- the rank's own optimizer state

TEST(LocalEngine, LocalStateIsResetKeptOrAveraged) {
  for (const LocalState state : {LocalState::reset, LocalState::keep, LocalState::average}) {
    std::vector<Weights> slots(2);
    const Schedule schedule = every_step({3, 6}, 2);
    run_ranks(2, [&](auto comm) {
      LocalRank rank(std::move(comm), momentum(0.5), local({.local_state = state}));
      std::int64_t step = 0;
      run_round(rank, schedule(rank.rank(), 0), 0, step);
      slots[static_cast<std::size_t>(rank.rank())] = rank.layers(rank.store().slot(0));
    });
    Simulation simulation{2, schedule, momentum(0.5)};
    simulation.local_steps(0);
    for (std::size_t i = 0; i < kLocalWeights; ++i) {
      const double v0 = simulation.replicas[0].v[i], v1 = simulation.replicas[1].v[i];
      const double mean = (3 * v0 + 6 * v1) / 9;
      const bool keeps = state == LocalState::keep, resets = state == LocalState::reset;
      EXPECT_NEAR(slots[0][i], resets ? 0 : keeps ? v0 : mean, kLocalTolerance);
      EXPECT_NEAR(slots[1][i], resets ? 0 : keeps ? v1 : mean, kLocalTolerance);
    }
    EXPECT_EQ(slots[0] == slots[1], state != LocalState::keep);
  }
}

/// AdamW's first step moves each weight by the rate, so a round that begins with zeroed slots has
/// to correct as if it were the first.
TEST(LocalEngine, ResetSlotsRestartTheBiasCorrection) {
  LocalOptions options;
  options.optimizer = {.name = "adamw"};
  LocalRank rank(std::move(make_thread_group(1)[0]), options, local(ModelRule{}));
  for (std::int64_t step = 1; step <= 5; ++step) {
    const Weights before = rank.weights();
    rank.begin(step);
    rank.step(first_sample(0, 0, 0), 4);
    rank.finish();
    const Weights after = rank.weights();
    for (std::size_t i = 0; i < kLocalWeights; ++i)
      EXPECT_NEAR(std::abs(after[i] - before[i]), options.lr, 1e-4) << step;
  }
}

}  // namespace
}  // namespace sidestep::testing
