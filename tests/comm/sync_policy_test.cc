#include "comm/sync_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/base/error.h"

namespace sidestep {
namespace {

TEST(SyncPolicy, SharesAddUpAndDifferByAtMostOne) {
  std::vector<std::int64_t> shares;
  for (const std::int64_t batch : {0, 1, 5, 63, 64}) {
    for (const int ranks : {1, 2, 3, 4, 7}) {
      even_shares(batch, ranks, shares);
      ASSERT_EQ(shares.size(), static_cast<std::size_t>(ranks));
      EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), std::int64_t{0}), batch);
      EXPECT_LE(shares.front() - shares.back(), 1);
      EXPECT_TRUE(std::is_sorted(shares.rbegin(), shares.rend()));
    }
  }
}

TEST(SyncPolicy, BspWaitsForAllWithEvenShares) {
  const auto policy = make_policy({.name = "bsp", .ranks = 4, .batch = 10});
  EXPECT_EQ(policy->name(), "bsp");
  WorkPlan plan;
  policy->plan({.step = 3, .global_batch = 10, .rank = 1, .ranks = 4}, plan);
  EXPECT_EQ(plan.shares, (std::vector<std::int64_t>{3, 3, 2, 2}));
  EXPECT_EQ(policy->rule(3).quorum, 0);
  EXPECT_EQ(policy->rule(3).divisor, Divisor::participants);
}

TEST(SyncPolicy, AnUnknownNameListsTheKnownOnes) {
  try {
    make_policy({.name = "bps"});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::settings);
    for (const std::string& name : policy_names())
      EXPECT_THAT(e.what(), ::testing::HasSubstr(name));
    EXPECT_THAT(e.what(), ::testing::HasSubstr("bps"));
  }
}

}  // namespace
}  // namespace sidestep
