// Steps in micro-batches of which a rank may leave some out (DropCompute).
#include <gtest/gtest.h>

#include "comm/round_engine.h"
#include "core/base/rng.h"
#include "tests/comm/chain_rank.h"
#include "tests/comm/ranks.h"
#include "tests/harness/tolerances.h"

namespace sidestep::testing {
namespace {

constexpr int kRanks = 3, kParts = 4;
constexpr std::int64_t kPart = 3, kSteps = 10;
using Weights = std::vector<float>;

int done_of(int rank, std::int64_t step) {
  return 1 + static_cast<int>(random_below(rng_key(1, "parts", static_cast<std::uint64_t>(rank)),
                                           static_cast<std::uint64_t>(step), kParts));
}
std::int64_t first_of(int rank, std::int64_t step) { return (step * kRanks + rank) * kParts * kPart; }

ChainOptions in_parts() {
  ChainOptions options;
  options.engine.micro_batches = true;
  return options;
}

std::vector<std::int64_t> starts(int rank, std::int64_t step) {
  std::vector<std::int64_t> firsts;
  for (int k = 0; k < done_of(rank, step); ++k) firsts.push_back(first_of(rank, step) + k * kPart);
  return firsts;
}

/// `foreseen(rank, step)`: whether the last micro-batch was known to be the last.
template <class F>
Weights train(F foreseen, int max_delay_us = 0) {
  std::vector<Weights> weights(kRanks);
  run_ranks(
      kRanks,
      [&](auto comm) {
        ChainRank rank(std::move(comm), in_parts());
        for (std::int64_t step = 0; step < kSteps; ++step)
          rank.train_parts(step, starts(rank.rank(), step), kPart, foreseen(rank.rank(), step));
        weights[static_cast<std::size_t>(rank.rank())] = rank.weights();
        const RoundResult result = rank.engine().result(kSteps - 1);
        std::int64_t samples = 0, flushed = 0;
        for (int r = 0; r < kRanks; ++r) {
          const std::int64_t own = done_of(r, kSteps - 1) * kPart;
          samples += own;
          flushed += foreseen(r, kSteps - 1) ? 0 : 1;
          EXPECT_EQ(result.entries[static_cast<std::size_t>(r)].samples, own);
          EXPECT_EQ(result.entries[static_cast<std::size_t>(r)].units, done_of(r, kSteps - 1));
        }
        EXPECT_EQ(result.weight, samples);
        EXPECT_EQ(result.flushed, flushed);
      },
      {.max_delay_us = max_delay_us, .seed = 4});
  for (const Weights& other : weights) EXPECT_EQ(other, weights[0]);
  return weights[0];
}

TEST(DropRound, AForeseenEndAndACutGiveTheSameBits) {
  const Weights foreseen = train([](int, std::int64_t) { return true; });
  EXPECT_EQ(train([](int, std::int64_t) { return false; }), foreseen);
  EXPECT_EQ(train([](int rank, std::int64_t step) { return (rank + step) % 2 == 0; }, 500), foreseen);
}

/// One rank that computes exactly the samples that the ranks completed, as micro-batches of one step.
TEST(DropRound, TheStepIsTheMeanOverTheCompletedSamples) {
  Weights one;
  run_ranks(1, [&](auto comm) {
    ChainRank rank(std::move(comm), in_parts());
    for (std::int64_t step = 0; step < kSteps; ++step) {
      std::vector<std::int64_t> samples;
      for (int r = 0; r < kRanks; ++r)
        for (std::int64_t i = 0; i < done_of(r, step) * kPart; ++i)
          samples.push_back(first_of(r, step) + i);
      rank.train_parts(step, samples, 1, true);
    }
    one = rank.weights();
  });
  const Weights dropped = train([](int, std::int64_t) { return true; });
  ASSERT_EQ(dropped.size(), one.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(dropped[i], one[i], kRanksTolerance);
}

}  // namespace
}  // namespace sidestep::testing
