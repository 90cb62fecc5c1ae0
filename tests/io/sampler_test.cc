#include "io/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/io/files.h"

namespace sidestep {
namespace {

using Ids = std::vector<std::int64_t>;

/// The ids of one epoch, every global batch cut into `ranks` ranges.
Ids epoch_ids(Sampler& sampler, std::int64_t epoch, int ranks) {
  Ids all, part;
  Cursor cursor{epoch, 0};
  for (std::int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
    const std::int64_t batch = sampler.batch_at(cursor);
    for (int r = 0; r < ranks; ++r) {
      sampler.ids(cursor, batch * r / ranks, batch * (r + 1) / ranks, part);
      all.insert(all.end(), part.begin(), part.end());
    }
    cursor = sampler.next(cursor);
  }
  EXPECT_EQ(cursor, (Cursor{epoch + 1, 0}));
  return all;
}

Ids counted(std::int64_t n) {
  Ids ids(static_cast<std::size_t>(n));
  std::iota(ids.begin(), ids.end(), std::int64_t{0});
  return ids;
}

TEST(Sampler, EpochHoldsEachSampleOnceForAnyNumberOfRanks) {
  Sampler one(1001, 20, 1, true), four(1001, 20, 1, true);
  EXPECT_EQ(one.steps_per_epoch(), 51);
  Ids ids = epoch_ids(one, 3, 1);
  EXPECT_EQ(ids, epoch_ids(four, 3, 4));
  EXPECT_NE(ids, counted(1001));
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(ids, counted(1001));
}

TEST(Sampler, OrderDependsOnSeedAndEpochOnly) {
  Sampler a(100, 7, 1, true), b(100, 13, 1, true), c(100, 7, 2, true);
  const Ids first = epoch_ids(a, 0, 1), second = epoch_ids(a, 1, 1);
  EXPECT_NE(first, second);
  EXPECT_EQ(second, epoch_ids(b, 1, 1));
  EXPECT_EQ(first, epoch_ids(a, 0, 1)) << "an earlier epoch again";
  EXPECT_NE(first, epoch_ids(c, 0, 1));
}

TEST(Sampler, ShufflesEvenly) {
  // Where sample 0 of 4 lands in 4000 epochs: 1000 each, standard deviation 27.
  Sampler sampler(4, 4, 9, true);
  Ids ids;
  std::vector<int> places(4);
  for (std::int64_t epoch = 0; epoch < 4000; ++epoch) {
    sampler.ids({epoch, 0}, 0, 4, ids);
    ++places[static_cast<std::size_t>(std::find(ids.begin(), ids.end(), 0) - ids.begin())];
  }
  for (const int n : places) EXPECT_NEAR(n, 1000, 150);
}

TEST(Sampler, WithoutShuffleKeepsTheOrder) {
  Sampler sampler(10, 4, 1, false);
  EXPECT_EQ(epoch_ids(sampler, 5, 3), counted(10));
}

TEST(Sampler, BatchSizesThatOccur) {
  EXPECT_EQ(Sampler(1001, 20, 1, true).batch_sizes(), (Ids{20, 1}));
  EXPECT_EQ(Sampler(1000, 20, 1, true).batch_sizes(), (Ids{20}));
  EXPECT_EQ(Sampler(3, 8, 1, true).batch_sizes(), (Ids{3}));
  EXPECT_EQ(Sampler(3, 8, 1, true).steps_per_epoch(), 1);
}

TEST(Sampler, GoesOnAtTheSameSample) {
  Sampler first(50, 8, 4, true), resumed(50, 8, 4, true);
  Ids before, after;
  Cursor cursor{2, 0};
  for (int i = 0; i < 3; ++i) {
    first.ids(cursor, 0, first.batch_at(cursor), before);
    cursor = first.next(cursor);
  }
  EXPECT_EQ(cursor, (Cursor{2, 24}));
  first.ids(cursor, 2, 6, before);
  resumed.ids(cursor, 2, 6, after);
  EXPECT_EQ(before, after);
  resumed.ids(cursor, 3, 3, after);
  EXPECT_TRUE(after.empty()) << "a rank without samples";
}

TEST(Sampler, RefusesWhatCannotBe) {
  test::error_of(Exit::settings, [] { Sampler(10, 0, 1, true); });
  test::error_of(Exit::data, [] { Sampler(0, 1, 1, true); });
  Sampler sampler(10, 4, 1, true);
  Ids ids;
  test::error_of(Exit::internal, [&] { sampler.ids({0, 8}, 0, 3, ids); });
  test::error_of(Exit::internal, [&] { sampler.batch_at({0, 10}); });
}

TEST(IndexDigest, RanksAddUp) {
  const Ids all{5, 17, 3, 900}, left{17, 3}, right{900, 5};
  EXPECT_EQ(index_digest(all, 2), index_digest(left, 2) + index_digest(right, 2));
  EXPECT_NE(index_digest(all, 2), index_digest(all, 3));
  EXPECT_NE(index_digest(Ids{1, 4}, 0), index_digest(Ids{2, 3}, 0));
  EXPECT_NE(index_digest(Ids{1}, 0), index_digest(Ids{1, 1}, 0));
  EXPECT_EQ(index_digest(Ids{}, 2), 0u);
}

}  // namespace
}  // namespace sidestep
