// Runs in-process ranks through rounds of local steps.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "comm/local_engine.h"
#include "tests/comm/local_rank.h"
#include "tests/comm/ranks.h"
#include "tests/harness/tolerances.h"

namespace sidestep::testing {

using Weights = std::vector<float>;
inline constexpr double kLocalTolerance = 2 * kRanksTolerance;  // weights up to two
inline constexpr int kLocalRounds = 8;

/// The local steps of a rank in a round: samples of each, whose numbers follow from the place.
using Schedule = std::function<std::vector<std::int64_t>(int rank, int round)>;
std::int64_t first_sample(int rank, int round, std::size_t step);
/// So many steps a round with these samples by rank.
Schedule every_step(std::vector<std::int64_t> shares, std::size_t steps);

LocalEngine::Options with(const ModelRule& rule);
LocalRank::Make local(const LocalEngine::Options& options);
inline LocalRank::Make local(const ModelRule& rule) { return local(with(rule)); }
/// The round engine, with the same buckets.
LocalRank::Make bsp();
LocalOptions momentum(double value);

/// Runs a round of this rank; `step` counts the local steps.
void run_round(LocalRank& rank, const std::vector<std::int64_t>& samples, int round,
               std::int64_t& step);
/// All ranks' weights after the last round.
std::vector<Weights> train_all(int ranks, const Schedule& schedule, const LocalRank::Make& make,
                               const LocalOptions& options = {},
                               const ThreadGroupOptions& group = {});
/// The same; checks that every rank holds the same bits.
Weights train(int ranks, const Schedule& schedule, const LocalRank::Make& make,
              const LocalOptions& options = {}, const ThreadGroupOptions& group = {});

void expect_near(const Weights& found, const std::vector<double>& expected,
                 double tolerance = kLocalTolerance);
void expect_near(const Weights& found, const Weights& expected);

}  // namespace sidestep::testing
