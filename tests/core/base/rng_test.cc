#include "core/base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

namespace sidestep {
namespace {

void expect_philox(Philox4 counter, std::uint64_t key, Philox4 wanted) {
  const Philox4 found = philox4x32(counter, key);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(found.v[i], wanted.v[i]) << "word " << i;
}

// Known answers of philox4x32 with 10 rounds: file kat_vectors of Random123.
TEST(Philox, KnownAnswers) {
  expect_philox({{0, 0, 0, 0}}, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  expect_philox({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, 0xffffffffffffffffu,
                {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
  expect_philox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0x299f31d0a4093822u,
                {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

TEST(RandomBits, IsAPureFunctionOfKeyAndCounter) {
  EXPECT_EQ(random_bits(7, 42), random_bits(7, 42));
  EXPECT_NE(random_bits(7, 42), random_bits(7, 43));
  EXPECT_NE(random_bits(7, 42), random_bits(8, 42));
  EXPECT_NE(random_bits(7, 1), random_bits(7, (std::uint64_t{1} << 32) + 1));
}

TEST(RandomBits, FirstTwoWordsOfPhilox) { EXPECT_EQ(random_bits(0, 0), 0x6627e8d5e169c58du); }

TEST(RandomUniform, LiesInRangeWithTheRightMoments) {
  constexpr int kDraws = 100000;
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const float u = random_uniform(3, static_cast<std::uint64_t>(i));
    ASSERT_GE(u, 0.0f);
    ASSERT_LT(u, 1.0f);
    sum += u;
    squares += double{u} * u;
  }
  // Five standard deviations of the mean: 5 * sqrt(1/12 / 100000).
  EXPECT_NEAR(sum / kDraws, 0.5, 0.005);
  EXPECT_NEAR(squares / kDraws, 1.0 / 3.0, 0.005);
}

TEST(RandomNormal, HasTheRightMomentsAndNoInfinity) {
  constexpr int kDraws = 100000;
  double sum = 0;
  double squares = 0;
  double fourth = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = random_normal(5, static_cast<std::uint64_t>(i));
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  EXPECT_NEAR(sum / kDraws, 0.0, 0.016);
  EXPECT_NEAR(squares / kDraws, 1.0, 0.023);
  EXPECT_NEAR(fourth / kDraws, 3.0, 0.16);
}

// Chi-squared with bound - 1 degrees of freedom; the limit is mean + 6 standard deviations.
void expect_even(std::uint64_t bound) {
  const auto cells = static_cast<std::size_t>(bound);
  constexpr double kPerCell = 2000;
  std::vector<int> count(cells);
  const auto draws = static_cast<std::uint64_t>(kPerCell) * bound;
  for (std::uint64_t i = 0; i < draws; ++i) {
    const std::uint64_t x = random_below(11, i, bound);
    ASSERT_LT(x, bound);
    ++count[static_cast<std::size_t>(x)];
  }
  double chi2 = 0;
  for (const int c : count) chi2 += (c - kPerCell) * (c - kPerCell) / kPerCell;
  const double freedom = static_cast<double>(bound - 1);
  EXPECT_LT(chi2, freedom + 6 * std::sqrt(2 * freedom));
}

TEST(RandomBelow, EveryValueComesEquallyOften) {
  expect_even(3);
  expect_even(10);
  expect_even(64);
}

TEST(RandomBelow, OneHasOneValue) {
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(random_below(1, i, 1), 0u);
}

TEST(RandomBelow, LargeBoundsRejectInsteadOfWrapping) {
  // A quarter of the raw values has to be rejected here; without rejection multiples of three would
  // come twice as often as other values.
  const std::uint64_t bound = std::uint64_t{3} << 62;
  constexpr int kDraws = 30000;
  int multiples = 0;
  for (int i = 0; i < kDraws; ++i) {
    const std::uint64_t x = random_below(2, static_cast<std::uint64_t>(i), bound);
    ASSERT_LT(x, bound);
    multiples += x % 3 == 0 ? 1 : 0;
  }
  // Six standard deviations: 6 * sqrt(30000 * 1/3 * 2/3) = 490.
  EXPECT_NEAR(multiples, kDraws / 3, 490);
}

TEST(RngKey, DiffersByEveryPart) {
  std::set<std::uint64_t> keys;
  for (const std::uint64_t seed : {0, 1, 2})
    for (const char* purpose : {"", "init", "shuffle", "fc1.weight", "fc2.weight"})
      for (const std::uint64_t a : {0, 1, 2})
        for (const std::uint64_t b : {0, 1, 2}) keys.insert(rng_key(seed, purpose, a, b));
  EXPECT_EQ(keys.size(), 3u * 5u * 3u * 3u);
  EXPECT_EQ(rng_key(1, "init", 2, 3), rng_key(1, "init", 2, 3));
}

TEST(Hash64, DependsOnEveryByteAndTheLength) {
  std::set<std::uint64_t> digests;
  const std::string text = "conv1.weight";
  for (std::size_t length = 0; length <= text.size(); ++length)
    digests.insert(hash64(text.data(), length));
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    digests.insert(hash64(changed.data(), changed.size()));
  }
  EXPECT_EQ(digests.size(), 2 * text.size() + 1);
}

}  // namespace
}  // namespace sidestep
