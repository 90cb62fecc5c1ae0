#include "core/optim/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/base/error.h"

namespace sidestep {
namespace {

/// Rates of the updates that cover [begin, end) in batches of this size, one per update.
std::vector<double> rates(const ScheduleConfig& config, std::int64_t begin, std::int64_t end,
                          std::int64_t batch) {
  std::vector<double> out;
  for (std::int64_t seen = begin; seen < end; seen += batch) {
    out.push_back(learning_rate(config, seen, batch));
  }
  return out;
}

TEST(Schedule, ConstantIsConstant) {
  const ScheduleConfig config{.name = "constant", .lr = 0.25};
  EXPECT_THAT(rates(config, 0, 1000, 100), testing::Each(0.25));
  EXPECT_EQ(learning_rate(config, std::int64_t{1} << 40, 7), 0.25);
}

TEST(Schedule, StepFallsExactlyAtItsSample) {
  const ScheduleConfig config{.name = "step", .lr = 1.0, .step_samples = 1000, .gamma = 0.5};
  EXPECT_EQ(learning_rate(config, 999, 100), 1.0);
  EXPECT_EQ(learning_rate(config, 1000, 100), 0.5);
  EXPECT_EQ(learning_rate(config, 1999, 100), 0.5);
  EXPECT_EQ(learning_rate(config, 2000, 100), 0.25);
  EXPECT_EQ(learning_rate(config, 10000, 100), 1.0 / 1024);
}

TEST(Schedule, CosineHasItsValuesAtQuartersOfTheWave) {
  const ScheduleConfig config{.name = "cosine", .lr = 1.0, .total_samples = 1200, .min_lr = 0.2};
  EXPECT_EQ(learning_rate(config, 0, 1), 1.0);
  EXPECT_NEAR(learning_rate(config, 400, 1), 0.2 + 0.4 * 1.5, 1e-15);
  EXPECT_NEAR(learning_rate(config, 600, 1), 0.6, 1e-15);
  EXPECT_NEAR(learning_rate(config, 800, 1), 0.2 + 0.4 * 0.5, 1e-15);
  EXPECT_GT(learning_rate(config, 1199, 1), 0.2);
  EXPECT_EQ(learning_rate(config, 1200, 1), 0.2);
  EXPECT_EQ(learning_rate(config, 99999, 1), 0.2);
}

TEST(Schedule, CosineBeginsAfterTheWarmUp) {
  const ScheduleConfig config{
      .name = "cosine", .lr = 1.0, .warmup_samples = 200, .total_samples = 1200};
  EXPECT_EQ(learning_rate(config, 100, 100), 1.0);
  EXPECT_EQ(learning_rate(config, 200, 100), 1.0);
  EXPECT_NEAR(learning_rate(config, 700, 100), 0.5, 1e-15);
  EXPECT_EQ(learning_rate(config, 1200, 100), 0.0);
}

TEST(Schedule, WarmUpIsLinearInSamplesAndNeverZero) {
  const ScheduleConfig config{.name = "constant", .lr = 0.8, .warmup_samples = 400};
  EXPECT_THAT(rates(config, 0, 600, 100),
              testing::Pointwise(testing::DoubleNear(1e-15), {0.2, 0.4, 0.6, 0.8, 0.8, 0.8}));
}

TEST(Schedule, WarmUpEndsWithinABatch) {
  const ScheduleConfig config{.name = "constant", .lr = 1.0, .warmup_samples = 250};
  EXPECT_THAT(rates(config, 0, 400, 100),
              testing::Pointwise(testing::DoubleNear(1e-15), {0.4, 0.8, 1.0, 1.0}));
}

TEST(Schedule, ABatchLongerThanTheWarmUpStartsAtTheFullRate) {
  const ScheduleConfig config{.name = "constant", .lr = 1.0, .warmup_samples = 50};
  EXPECT_EQ(learning_rate(config, 0, 100), 1.0);
}

TEST(Schedule, TheRateAfterWarmUpDoesNotDependOnTheBatchSplit) {
  const ScheduleConfig config{
      .name = "cosine", .lr = 0.7, .warmup_samples = 96, .total_samples = 960, .min_lr = 0.01};
  for (std::int64_t seen = 96; seen < 960; seen += 96) {
    EXPECT_EQ(learning_rate(config, seen, 96), learning_rate(config, seen, 32)) << seen;
  }
}

TEST(Schedule, WarmUpAtTheEndOfABatchDoesNotDependOnTheSplit) {
  const ScheduleConfig config{.name = "constant", .lr = 0.7, .warmup_samples = 960};
  // The update that ends at sample 480 has the same rate whatever its size.
  EXPECT_EQ(learning_rate(config, 384, 96), learning_rate(config, 448, 32));
}

void expect_settings_error(const ScheduleConfig& config, const std::string& text) {
  try {
    learning_rate(config, 0, 1);
    FAIL() << "expected an error about " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::settings);
    EXPECT_THAT(error.what(), testing::HasSubstr(text));
  }
}

TEST(Schedule, SaysWhatIsWrong) {
  expect_settings_error({.name = "cosin"}, "constant, step, cosine, found \"cosin\"");
  expect_settings_error({.name = "cosine"}, "total samples");
  expect_settings_error({.name = "step"}, "step samples");
}

}  // namespace
}  // namespace sidestep
