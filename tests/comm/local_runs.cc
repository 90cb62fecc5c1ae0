#include "tests/comm/local_runs.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "comm/round_engine.h"

namespace sidestep::testing {
namespace {

constexpr BucketSizes kBuckets{.bytes = 160, .first_bytes = 80};

}  // namespace

std::int64_t first_sample(int rank, int round, std::size_t step) {
  return ((round * 8 + static_cast<std::int64_t>(step)) * 8 + rank) * 16;
}

Schedule every_step(std::vector<std::int64_t> shares, std::size_t steps) {
  return [shares = std::move(shares), steps](int rank, int) {
    return std::vector<std::int64_t>(steps, shares[static_cast<std::size_t>(rank)]);
  };
}

LocalEngine::Options with(const ModelRule& rule) {
  LocalEngine::Options options;
  options.rule = rule;
  options.buckets = kBuckets;
  return options;
}

LocalRank::Make local(const LocalEngine::Options& options) {
  return [options](ParamStore& store, const Optimizer& optimizer, CommThread& comm, Stream& compute,
                   Stream& update) -> std::unique_ptr<Engine> {
    return std::make_unique<LocalEngine>(store, optimizer, comm, compute, update, options);
  };
}

LocalRank::Make bsp() {
  return [](ParamStore& store, const Optimizer& optimizer, CommThread& comm, Stream& compute,
            Stream& update) -> std::unique_ptr<Engine> {
    return std::make_unique<RoundEngine>(store, optimizer, comm, compute, update,
                                         RoundEngine::Options{.buckets = kBuckets});
  };
}

void run_round(LocalRank& rank, const std::vector<std::int64_t>& samples, int round,
               std::int64_t& step) {
  for (std::size_t h = 0; h < samples.size(); ++h) {
    ++step;
    if (h == 0) {
      rank.begin(step);
    } else {
      rank.next(step);
    }
    rank.step(first_sample(rank.rank(), round, h), samples[h]);
  }
  rank.finish();
}

std::vector<Weights> train_all(int ranks, const Schedule& schedule, const LocalRank::Make& make,
                               const LocalOptions& options, const ThreadGroupOptions& group) {
  std::vector<Weights> weights(static_cast<std::size_t>(ranks));
  run_ranks(
      ranks,
      [&](auto comm) {
        LocalRank rank(std::move(comm), options, make);
        std::int64_t step = 0;
        for (int round = 0; round < kLocalRounds; ++round)
          run_round(rank, schedule(rank.rank(), round), round, step);
        weights[static_cast<std::size_t>(rank.rank())] = rank.weights();
      },
      group);
  return weights;
}

Weights train(int ranks, const Schedule& schedule, const LocalRank::Make& make,
              const LocalOptions& options, const ThreadGroupOptions& group) {
  const std::vector<Weights> weights = train_all(ranks, schedule, make, options, group);
  for (const Weights& other : weights) EXPECT_EQ(other, weights[0]);
  return weights[0];
}

LocalOptions momentum(double value) {
  LocalOptions options;
  options.optimizer.momentum = value;
  return options;
}

void expect_near(const Weights& found, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], tolerance) << "weight " << i;
}

void expect_near(const Weights& found, const Weights& expected) {
  expect_near(found, std::vector<double>(expected.begin(), expected.end()));
}

}  // namespace sidestep::testing
