#include "comm/buckets.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/base/rng.h"
#include "tests/comm/stores.h"

namespace sidestep::testing {
namespace {

/// Every parameter is in exactly one bucket; buckets cover the flat buffer in order, without gaps.
void expect_covers(const ParamStore& store, const BucketPlan& plan) {
  std::int64_t end = 0;
  std::vector<ParamId> order;
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const Bucket& bucket = plan.buckets[b];
    ASSERT_FALSE(bucket.params.empty());
    EXPECT_EQ(bucket.begin, end);
    EXPECT_EQ(bucket.begin, store.offset(bucket.params.front()));
    end = bucket.end;
    for (const ParamId p : bucket.params) {
      order.push_back(p);
      EXPECT_EQ(plan.bucket_of[static_cast<std::size_t>(p)], static_cast<int>(b));
    }
  }
  EXPECT_EQ(end, store.flat_numel());
  EXPECT_EQ(order, store.order());
}

std::vector<std::size_t> counts(const BucketPlan& plan) {
  std::vector<std::size_t> result;
  for (const Bucket& bucket : plan.buckets) result.push_back(bucket.params.size());
  return result;
}

TEST(Buckets, TheFirstIsSmallerAndABigParameterIsAlone) {
  // 64 bytes per 16 elements
  const ParamStore store = store_of({16, 16, 16, 16, 16, 1000, 16, 16});
  const BucketPlan plan = plan_buckets(store, {.bytes = 192, .first_bytes = 64});
  expect_covers(store, plan);
  EXPECT_EQ(counts(plan), (std::vector<std::size_t>{1, 3, 1, 1, 2}));
}

TEST(Buckets, OneBucketWhenEverythingFits) {
  const ParamStore store = store_of({5, 7, 300});
  EXPECT_EQ(counts(plan_buckets(store, {.bytes = 1 << 20, .first_bytes = 1 << 20})),
            std::vector<std::size_t>{3});
}

TEST(Buckets, ABigParameterInFront) {
  const ParamStore store = store_of({1000, 16, 16});
  EXPECT_EQ(counts(plan_buckets(store, {.bytes = 1024, .first_bytes = 64})),
            (std::vector<std::size_t>{1, 2}));
}

TEST(Buckets, CoverWhateverTheSizes) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const std::uint64_t key = rng_key(seed, "sizes");
    std::vector<std::int64_t> sizes(1 + random_below(key, 0, 30));
    for (std::size_t i = 0; i < sizes.size(); ++i)
      sizes[i] = 1 + static_cast<std::int64_t>(random_below(key, i + 1, i % 5 == 0 ? 2000 : 90));
    const ParamStore store = store_of(sizes);
    const BucketSizes limits{.bytes = static_cast<std::int64_t>(64 << (seed % 6)),
                             .first_bytes = static_cast<std::int64_t>(16 << (seed % 5))};
    const BucketPlan plan = plan_buckets(store, limits);
    expect_covers(store, plan);
    for (std::size_t b = 1; b + 1 < plan.buckets.size(); ++b) {
      const Bucket& bucket = plan.buckets[b];
      const std::int64_t without_last = store.offset(bucket.params.back()) - bucket.begin;
      EXPECT_LT(without_last * 4, limits.bytes) << "closed too late, seed " << seed;
    }
  }
}

}  // namespace
}  // namespace sidestep::testing
