#include "io/ledger.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/base/rng.h"

namespace sidestep {
namespace {

TEST(Ledger, HandsOutWhatIsFreshFirst) {
  Ledger ledger(10);
  Block block;
  ledger.take(4, block);
  EXPECT_EQ(block.ranges, (std::vector<Range>{{0, 4}}));
  ledger.give_back(std::vector<Range>{{1, 3}});
  ledger.take(6, block);
  EXPECT_EQ(block.ranges, (std::vector<Range>{{4, 10}}));
  EXPECT_EQ(ledger.available(), 2);
  ledger.take(2, block);
  EXPECT_EQ(block.ranges, (std::vector<Range>{{1, 3}}));
  ledger.next_epoch();
  EXPECT_EQ(ledger.cursor(), (Cursor{1, 0}));
  EXPECT_EQ(ledger.available(), 10);
}

TEST(Ledger, SlicesOfABlockAreItsSamplesInOrder) {
  const Block block{.epoch = 0, .ranges = {{10, 13}, {2, 4}, {7, 8}}};
  EXPECT_EQ(block.size(), 6);
  std::vector<Range> slice;
  block.slice(2, 5, slice);
  EXPECT_EQ(slice, (std::vector<Range>{{12, 13}, {2, 4}}));
  slice.clear();
  block.slice(6, 6, slice);
  EXPECT_TRUE(slice.empty());
  EXPECT_THROW(block.slice(4, 7, slice), Error);
}

/// Whatever comes back, each position is applied exactly once before the epoch ends.
TEST(Ledger, EverySampleIsServedUntilItIsApplied) {
  constexpr std::int64_t kSize = 97;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::uint64_t key = rng_key(seed, "ledger test");
    std::uint64_t drawn = 0;
    Ledger ledger(kSize);
    std::vector<int> applied(kSize);
    Block block;
    while (ledger.available() > 0) {
      const auto most = static_cast<std::uint64_t>(std::min<std::int64_t>(ledger.available(), 20));
      ledger.take(static_cast<std::int64_t>(1 + random_below(key, drawn++, most)), block);
      const auto kept = static_cast<std::int64_t>(
          random_below(key, drawn++, static_cast<std::uint64_t>(block.size()) + 1));
      std::vector<Range> done, rest;
      block.slice(0, kept, done);
      block.slice(kept, block.size(), rest);
      for (const Range& range : done)
        for (std::int64_t i = range.begin; i < range.end; ++i) ++applied[static_cast<std::size_t>(i)];
      ledger.give_back(rest);
    }
    EXPECT_EQ(applied, std::vector<int>(kSize, 1));
    ledger.next_epoch();
  }
}

TEST(Ledger, GoesOnFromWhatWasSaved) {
  Ledger ledger(50);
  Block block;
  ledger.take(30, block);
  ledger.give_back(std::vector<Range>{{3, 9}});
  Ledger resumed(50);
  resumed.restore(ledger.cursor(), ledger.returned_ranges());
  for (const std::int64_t n : {15, 5, 4, 2}) {
    Block other;
    ledger.take(n, block);
    resumed.take(n, other);
    EXPECT_EQ(block.ranges, other.ranges);
  }
  EXPECT_THROW(resumed.restore({0, 10}, {{5, 12}}), Error);
}

TEST(Ledger, AnEpochEndsOnlyWhenAllIsServed) {
  Ledger ledger(5);
  Block block;
  EXPECT_THROW(ledger.next_epoch(), Error);
  EXPECT_THROW(ledger.take(6, block), Error);
  ledger.take(5, block);
  ledger.give_back(std::vector<Range>{{4, 5}});
  EXPECT_THROW(ledger.next_epoch(), Error);
}

}  // namespace
}  // namespace sidestep
