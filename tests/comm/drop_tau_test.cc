#include "comm/drop_tau.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sidestep {
namespace {

using Table = std::vector<std::vector<double>>;

TEST(DropTau, EqualRanksHaveNothingToGain) {
  EXPECT_TRUE(std::isinf(choose_tau(Table(20, {0.01, 0.01, 0.01, 0.01}), 8, 0.1).tau_s));
}

/// One rank of eight at half speed: with all eight micro-batches a step takes 16, with a cap of 8 it
/// takes 8, and a sixteenth of the work is left out.
TEST(DropTau, ASlowRankIsCutToTheOthersTime) {
  const Table table(20, {2, 1, 1, 1, 1, 1, 1, 1});
  const DropChoice choice = choose_tau(table, 8, 0.1);
  EXPECT_GT(choice.tau_s, 6);
  EXPECT_LE(choice.tau_s, 8);
  EXPECT_NEAR(choice.dropped, 4.0 / 64, 1e-12);
  EXPECT_NEAR(choice.speedup, (1 - 4.0 / 64) * 2, 1e-12);
}

TEST(DropTau, TheCapIsNeverExceeded) {
  const Table table(20, {4, 1, 1, 1});  // cutting rank 0 to the others' time would drop 6 of 32
  for (const double cap : {0.02, 0.05, 0.1, 0.2}) {
    const DropChoice choice = choose_tau(table, 8, cap);
    EXPECT_LE(choice.dropped, cap);
  }
  EXPECT_NEAR(choose_tau(table, 8, 0.2).dropped, 6.0 / 32, 1e-12);
}

TEST(DropTau, NeedsSeveralMicroBatchesAndMeasurements) {
  EXPECT_TRUE(std::isinf(choose_tau(Table(20, {2, 1}), 1, 0.1).tau_s));
  EXPECT_TRUE(std::isinf(choose_tau(Table(20, {0, 0}), 8, 0.1).tau_s));
  EXPECT_TRUE(std::isinf(choose_tau({}, 8, 0.1).tau_s));
}

}  // namespace
}  // namespace sidestep
