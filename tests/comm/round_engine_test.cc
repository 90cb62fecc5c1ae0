#include "comm/round_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <ostream>
#include <thread>

#include "core/base/error.h"
#include "tests/comm/chain_rank.h"
#include "tests/comm/ranks.h"
#include "tests/harness/allocation_count.h"
#include "tests/harness/tolerances.h"

namespace sidestep::testing {
namespace {

using Weights = std::vector<float>;
constexpr std::int64_t kSteps = 12;
constexpr std::int64_t kBatch = 12;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

ChainOptions with(Overlap overlap) {
  ChainOptions options;
  options.engine.overlap = overlap;
  return options;
}

/// The weights after kSteps on batches that the ranks share by `shares` (they add up to kBatch);
/// checks that all ranks hold the same bits.
Weights train(const std::vector<std::int64_t>& shares, const ChainOptions& options,
              const ThreadGroupOptions& group = {}) {
  std::vector<Weights> weights(shares.size());
  run_ranks(
      static_cast<int>(shares.size()),
      [&](auto comm) {
        ChainRank rank(std::move(comm), options);
        const auto r = static_cast<std::size_t>(rank.rank());
        std::int64_t before = 0;
        for (std::size_t k = 0; k < r; ++k) before += shares[k];
        for (std::int64_t step = 0; step < kSteps; ++step)
          rank.train(step, step * kBatch + before, shares[r]);
        weights[r] = rank.weights();
      },
      group);
  for (const Weights& other : weights) EXPECT_EQ(other, weights[0]);
  return weights[0];
}

void expect_near(const Weights& found, const Weights& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], tolerance) << i;
}

TEST(RoundEngine, RanksTogetherEqualOneRank) {
  const Weights one = train({kBatch}, with(Overlap::off));
  for (const std::vector<std::int64_t>& shares :
       {std::vector<std::int64_t>{6, 6}, {3, 3, 3, 3}, {7, 0, 5}, {0, 12}, {1, 11}}) {
    expect_near(train(shares, with(Overlap::full)), one, kRanksTolerance);
  }
}

TEST(RoundEngine, AnIdleRankIsNoParticipant) {
  run_ranks(3, [](auto comm) {
    ChainRank rank(std::move(comm), with(Overlap::full));
    constexpr std::int64_t kShares[] = {4, 0, 7};
    const std::int64_t samples = kShares[rank.rank()];
    rank.train(0, 0, samples);
    const RoundResult result = rank.engine().result(0);
    EXPECT_EQ(result.weight, 11);
    EXPECT_EQ(result.samples, 11);
    EXPECT_EQ(result.correct, 2 + 3);
    EXPECT_EQ(result.participants, 2);
    EXPECT_GT(result.loss_sum, 0);
    EXPECT_FALSE(result.grad_norm.has_value());
  });
}

class OverlapTest : public ::testing::TestWithParam<Overlap> {};
INSTANTIATE_TEST_SUITE_P(Modes, OverlapTest,
                         ::testing::Values(Overlap::off, Overlap::backward, Overlap::full));

TEST_P(OverlapTest, LateLastReadersAndLateResultsChangeNoBit) {
  for (const bool clip : {false, true}) {
    ChainOptions plain = with(Overlap::off);
    plain.engine.clip_norm = clip ? 0.05 : 0;
    const Weights expected = train({4, 3, 5}, plain);
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      ChainOptions late = plain;
      late.engine.overlap = GetParam();
      late.max_reader_delay_us = 1500;
      late.delay_seed = seed;
      EXPECT_EQ(train({4, 3, 5}, late, {.max_delay_us = seed % 2 == 0 ? 0 : 800, .seed = seed}),
                expected)
          << "seed " << seed << ", clipping " << clip;
    }
  }
}

TEST_P(OverlapTest, UpdatesOnTheComputeStreamChangeNoBit) {
  const Weights expected = train({5, 7}, with(Overlap::off));
  for (const StreamMode mode : {StreamMode::threaded, StreamMode::direct}) {
    for (const bool one_stream : {false, true}) {
      ChainOptions options = with(GetParam());
      options.mode = mode;
      options.one_stream = one_stream;
      EXPECT_EQ(train({5, 7}, options), expected);
    }
  }
}

/// Trains a step in which the last reader of the last layer comes only after its update, which is
/// possible only where the engine is told nothing of last readers.
TEST(RoundEngine, TheTestOfLastReadersSeesAnUpdateThatCameTooEarly) {
  const auto run = [](bool forget) {
    ChainOptions options = with(Overlap::full);
    options.forget_last_reads = forget;
    ChainRank rank(std::move(make_thread_group(1)[0]), options);
    Timeline updated;
    rank.set_reader_hook([&](int layer) {
      if (forget && layer == ChainRank::kLayers - 1) updated.wait(1);
    });
    rank.train(0, 0, kBatch);
    if (forget) rank.engine().ready(0).wait();
    updated.advance(1);
    return rank.weights();
  };
  EXPECT_NE(run(true), run(false));
}

TEST(RoundEngine, AnUpdateWaitsForTheLastReader) {
  ChainRank rank(std::move(make_thread_group(1)[0]), with(Overlap::full));
  Timeline go;
  rank.set_reader_hook([&](int layer) {
    if (layer == 0) go.wait(1);
  });
  rank.train(0, 0, kBatch);
  for (ParamId p = 0; p + 2 < ChainRank::kLayers; ++p) rank.engine().ready(p).wait();
  EXPECT_FALSE(rank.engine().ready(ChainRank::kLayers - 1).done());
  EXPECT_FALSE(rank.engine().quiesced().done());
  go.advance(1);
  rank.engine().quiesced().wait();
  EXPECT_TRUE(rank.engine().ready(ChainRank::kLayers - 1).done());
}

TEST(RoundEngine, ClippingFollowsTheFormula) {
  constexpr double kClip = 0.5;
  run_ranks(2, [](auto comm) {
    ChainOptions options = with(Overlap::full);
    options.engine.clip_norm = kClip;
    options.optimizer = {.name = "sgd", .momentum = 0};
    ChainRank rank(std::move(comm), options);
    const Weights before = rank.weights();
    const int r = rank.rank();
    // Rank r has r + 1 samples; gradients are (layer + 1) (j - 10) (r + 1).
    rank.train_by_hand(0, r + 1, [r](int layer, float* dw) {
      for (int j = 0; j < ChainRank::kWidth; ++j)
        dw[j] = static_cast<float>((layer + 1) * (j - 10) * (r + 1));
    });
    const Weights after = rank.weights();
    const RoundResult result = rank.engine().result(0);
    double squares = 0;
    std::vector<double> mean;
    for (int layer = 0; layer < ChainRank::kLayers; ++layer) {
      for (int j = 0; j < ChainRank::kWidth; ++j) {
        mean.push_back((layer + 1.0) * (j - 10.0) * 3 / 3);
        squares += mean.back() * mean.back();
      }
    }
    const double norm = std::sqrt(squares);
    const double coefficient = std::min(1.0, kClip / (norm + 1e-6));
    ASSERT_TRUE(result.grad_norm.has_value());
    EXPECT_DOUBLE_EQ(*result.grad_norm, norm);
    EXPECT_LT(coefficient, 1);
    Weights expected;
    for (std::size_t i = 0; i < before.size(); ++i)
      expected.push_back(
          static_cast<float>(before[i] - ChainRank::kLearningRate * coefficient * mean[i]));
    expect_near(after, expected, kRanksTolerance);
  });
}

TEST(RoundEngine, AGradientBelowTheLimitIsNotClipped) {
  ChainOptions clipped = with(Overlap::full);
  clipped.engine.clip_norm = 1e9;
  EXPECT_EQ(train({6, 6}, clipped), train({6, 6}, with(Overlap::full)));
}

struct NotFinite {
  Overlap overlap;
  bool one_stream;
  double clip;
};
/// GoogleTest's name for a case.
void PrintTo(const NotFinite& mode, std::ostream* out) {
  *out << "overlap " << static_cast<int>(mode.overlap) << ", one stream " << mode.one_stream
       << ", clip " << mode.clip;
}
class NotFiniteTest : public ::testing::TestWithParam<NotFinite> {};
INSTANTIATE_TEST_SUITE_P(
    Modes, NotFiniteTest,
    ::testing::Values(NotFinite{Overlap::off, false, 0}, NotFinite{Overlap::backward, false, 0},
                      NotFinite{Overlap::full, false, 0}, NotFinite{Overlap::full, true, 0},
                      NotFinite{Overlap::full, false, 1}, NotFinite{Overlap::full, true, 1}));

/// Runs five steps; what `plant` leaves in step 2 of rank 1 must stop each rank there.
void expect_stop_at_step_2(const NotFinite& mode, double loss, float planted,
                           const std::string& what) {
  auto group = make_thread_group(3, {.max_delay_us = 300, .seed = 1});
  ChainOptions options = with(mode.overlap);
  options.one_stream = mode.one_stream;
  options.engine.clip_norm = mode.clip;
  std::vector<std::unique_ptr<ChainRank>> ranks(3);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      ranks[r] = std::make_unique<ChainRank>(std::move(group[r]), options);
      RoundEngine& engine = ranks[r]->engine();
      for (std::int64_t step = 0; step < 4; ++step) {
        const bool bad = step == 2 && r == 1;
        ranks[r]->train_by_hand(
            step, 1,
            [bad, planted](int layer, float* dw) {
              std::fill(dw, dw + ChainRank::kWidth, 1.0f);
              if (bad && layer == 1) dw[7] = planted;
            },
            bad ? loss : 1.0);
      }
      EXPECT_EQ(engine.result(1).weight, 3);
      try {
        engine.result(2);
        ADD_FAILURE() << "rank " << r << " did not stop";
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), Exit::numbers) << e.what();
        EXPECT_THAT(e.what(), ::testing::HasSubstr("step 2: " + what));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(NotFiniteTest, AGradientStopsAllRanksAtTheSameStep) {
  // layer 1 is the parameter before the last
  expect_stop_at_step_2(GetParam(), 1, kInfinity, "the reduced gradient of w3 is not finite");
  expect_stop_at_step_2(GetParam(), 1, std::nanf(""), "the reduced gradient of w3 is not finite");
}

TEST_P(NotFiniteTest, ALossStopsAllRanksAtTheSameStep) {
  expect_stop_at_step_2(GetParam(), std::nan(""), 1, "the loss summed over all ranks");
}

TEST(RoundEngine, NoSamplesAnywhereLeaveTheWeights) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    run_ranks(2, [&](auto comm) {
      ChainOptions options = with(Overlap::full);
      options.optimizer.name = optimizer;
      options.engine.clip_norm = 1;
      ChainRank rank(std::move(comm), options);
      rank.train(0, 0, kBatch);
      const Weights before = rank.weights();
      rank.train(1, 0, 0);
      EXPECT_EQ(rank.engine().result(1).weight, 0);
      EXPECT_EQ(rank.engine().result(1).participants, 0);
      EXPECT_EQ(rank.weights(), before);
    });
  }
}

TEST(RoundEngine, KeepsTheLastRounds) {
  ChainRank rank(std::move(make_thread_group(1)[0]), with(Overlap::full));
  for (std::int64_t step = 0; step < 10; ++step) rank.train(step, 0, step + 1);
  for (std::int64_t step = 10 - RoundEngine::kKept; step < 10; ++step)
    EXPECT_EQ(rank.engine().result(step).samples, step + 1);
  EXPECT_THROW(rank.engine().result(9 - RoundEngine::kKept), Error);
}

TEST(RoundEngine, AStepAllocatesNothing) {
  ChainRank rank(std::move(make_thread_group(1)[0]), with(Overlap::full));
  for (std::int64_t step = 0; step < 6; ++step) rank.train(step, 0, kBatch);
  rank.engine().quiesced().wait();
  const std::int64_t before = allocation_count();
  for (std::int64_t step = 6; step < 20; ++step) {
    rank.train(step, 0, step % 3 == 0 ? 0 : kBatch);
    rank.engine().result(step);
  }
  EXPECT_EQ(allocation_count(), before);
}

TEST(RoundEngine, AnErrorOnOneRankFreesThePeers) {
  const auto run = [] {
    run_ranks(2, [](auto comm) {
      ChainRank rank(std::move(comm), with(Overlap::full));
      rank.train(0, 0, kBatch);
      if (rank.rank() == 1) throw Error(Exit::data, "planted");
      rank.train(1, 0, kBatch);
      try {
        rank.engine().result(1);
        ADD_FAILURE() << "rank 0 went on alone";
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), Exit::communication);
      }
    });
  };
  EXPECT_THROW(run(), Error);
}

TEST(RoundEngine, SpansOfBothRows) {
  Tracer tracer(256);
  tracer.set_window(1, 1);
  ChainOptions options = with(Overlap::full);
  options.engine.tracer = &tracer;
  ChainRank rank(std::move(make_thread_group(1)[0]), options);
  for (std::int64_t step = 0; step < 3; ++step) rank.train(step, 0, kBatch);
  rank.weights();
  EXPECT_EQ(tracer.spans().size(), rank.engine().plan().buckets.size());
  for (const TraceSpan& span : tracer.spans()) EXPECT_EQ(span.row, TraceRow::update);
}

}  // namespace
}  // namespace sidestep::testing
