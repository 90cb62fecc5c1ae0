#include "comm/shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/base/rng.h"

namespace sidestep {
namespace {

double longest(const std::vector<std::int64_t>& shares, const std::vector<double>& times) {
  double most = 0;
  for (std::size_t r = 0; r < shares.size(); ++r)
    most = std::max(most, static_cast<double>(shares[r]) * times[r]);
  return most;
}

/// The best that any division into shares of at least one can do.
double brute_force(std::int64_t units, const std::vector<double>& times, std::size_t rank = 0) {
  if (rank + 1 == times.size()) return static_cast<double>(units) * times[rank];
  double best = 1e300;
  for (std::int64_t own = 1; own <= units - std::ssize(times) + static_cast<std::int64_t>(rank) + 1; ++own)
    best = std::min(best, std::max(static_cast<double>(own) * times[rank],
                                   brute_force(units - own, times, rank + 1)));
  return best;
}

TEST(Shares, NoDivisionEndsEarlier) {
  const std::uint64_t key = rng_key(3, "shares test");
  std::uint64_t drawn = 0;
  for (std::size_t ranks = 1; ranks <= 4; ++ranks) {
    for (int repeat = 0; repeat < 25; ++repeat) {
      std::vector<double> times;
      for (std::size_t r = 0; r < ranks; ++r)
        times.push_back(0.5 + static_cast<double>(random_uniform(key, drawn++)) * 3);
      const std::int64_t units = static_cast<std::int64_t>(ranks + random_below(key, drawn++, 14));
      std::vector<std::int64_t> shares;
      greedy_shares(units, times, shares);
      EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), std::int64_t{0}), units);
      EXPECT_GE(*std::ranges::min_element(shares), 1);
      EXPECT_NEAR(longest(shares, times), brute_force(units, times), 1e-9);
    }
  }
}

TEST(Shares, EqualTimesGiveEqualShares) {
  std::vector<std::int64_t> shares;
  greedy_shares(12, std::vector<double>(4, 0.25), shares);
  EXPECT_EQ(shares, (std::vector<std::int64_t>{3, 3, 3, 3}));
}

}  // namespace
}  // namespace sidestep
