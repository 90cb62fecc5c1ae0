#include "comm/injector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.h"

namespace sidestep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A rank's extra time in a whole step.
double in_step(const Injector& injector, int rank, std::int64_t step, int units = 8) {
  double sum = 0;
  for (int u = 0; u < units; ++u) sum += injector.compute(rank, step, u, units);
  return sum;
}

TEST(Injector, AnEmptyTextDelaysNothing) {
  const Injector none("", 1, 4);
  EXPECT_FALSE(none.active());
  EXPECT_EQ(in_step(none, 1, 5), 0);
  EXPECT_EQ(none.comm_factor(1, 5), 1);
  EXPECT_EQ(none.content(std::vector<std::int64_t>{1, 2}, {}), 1);
  EXPECT_FALSE(none.by_content());
}

TEST(Injector, DelaysDependOnTheirPlaceAloneAndNotOnTheOrderOfCalls) {
  const char* text = "S0,S1,S3,S4,burst=20/10/2:+0.5,links=3";
  const Injector forward(text, 7, 4), backward(text, 7, 4), other(text, 8, 4);
  std::vector<double> a, b, c;
  const auto ask = [](const Injector& injector, int i, std::vector<double>& out) {
    const int unit = i % 4, rank = i / 4 % 4, step = i / 16;
    out.push_back(injector.compute(rank, step, unit, 4));
    out.push_back(injector.comm_factor(rank, step));
  };
  for (int i = 0; i < 16 * 200; ++i) ask(forward, i, a);
  for (int i = 0; i < 16 * 200; ++i) ask(other, i, c);
  for (int i = 16 * 200; i-- > 0;) {
    std::vector<double> pair;
    ask(backward, i, pair);
    b.insert(b.begin(), pair.begin(), pair.end());
  }
  EXPECT_EQ(a, b);
  std::size_t equal = 0;
  for (std::size_t i = 0; i < a.size(); ++i) equal += a[i] == c[i];
  EXPECT_LT(equal, a.size() / 2) << "another seed draws other numbers (a transfer is often 1)";
}

TEST(Injector, RandomRanksAreDistinctAndEachAsOften) {
  constexpr int kRanks = 8, kSteps = 8000;
  for (const auto& [name, count, delay] : {std::tuple{"S1", 1, 1.0}, std::tuple{"S2", 2, 3.2}}) {
    const Injector injector(name, 3, kRanks);
    std::vector<int> hits(kRanks);
    for (int step = 1; step <= kSteps; ++step) {
      int late = 0;
      for (int r = 0; r < kRanks; ++r) {
        const double extra = in_step(injector, r, step);
        if (extra == 0) continue;
        EXPECT_DOUBLE_EQ(extra, delay);
        EXPECT_DOUBLE_EQ(injector.compute(r, step, 0, 8), delay) << "before the first micro-batch";
        ++late;
        ++hits[static_cast<std::size_t>(r)];
      }
      ASSERT_EQ(late, count) << name << " step " << step;
    }
    const double p = static_cast<double>(count) / kRanks;
    for (const int n : hits) EXPECT_NEAR(n, kSteps * p, 5 * std::sqrt(kSteps * p * (1 - p)));
  }
}

TEST(Injector, NoiseAndExponentialHaveTheirMeans) {
  constexpr int kRanks = 8, kSteps = 20000;
  const Injector calm("S0", 5, kRanks), exponential("S3", 5, kRanks);
  double noise = 0, sum = 0, squares = 0, slowest = 0;
  for (int step = 1; step <= kSteps; ++step) {
    double longest = 0;
    for (int r = 0; r < kRanks; ++r) {
      noise += in_step(calm, r, step);
      const double x = in_step(exponential, r, step);
      EXPECT_NEAR(exponential.compute(r, step, 0, 1), x, 1e-12) << "spread over micro-batches";
      sum += x, squares += x * x;
      longest = std::max(longest, 0.7 * (1 + x));
    }
    slowest += longest;
  }
  constexpr double kCount = double{kRanks} * kSteps, kMean = 3.0 / 7.0;
  EXPECT_NEAR(noise / kCount, 0.01 * std::sqrt(2 / std::acos(-1.0)), 1e-4);
  EXPECT_NEAR(sum / kCount, kMean, 0.01);
  EXPECT_NEAR(squares / kCount, 2 * kMean * kMean, 0.02);
  double harmonic = 0;
  for (int k = 1; k <= kRanks; ++k) harmonic += 1.0 / k;
  EXPECT_NEAR(slowest / kSteps, 0.7 + 0.3 * harmonic, 0.02) << "bsp's step, as in the theory";
}

TEST(Injector, LogNormalMicroBatchesTakeHalfOfTheirTimeLongerOnAverage) {
  const Injector injector("S4", 5, 4);
  constexpr int kSteps = 20000;
  double sum = 0, largest = 0;
  std::vector<double> all;
  for (int step = 1; step <= kSteps; ++step)
    for (int unit = 0; unit < 4; ++unit) {
      const double x = injector.compute(2, step, unit, 4) * 4;  // in micro-batch times
      sum += x;
      largest = std::max(largest, x);
      all.push_back(x);
    }
  EXPECT_NEAR(sum / (4.0 * kSteps), 0.5, 0.02);
  EXPECT_LT(largest, 0.5 * 1000 / 89) << "cut";
  EXPECT_GT(largest, 0.5 * 1000 / 90);
  std::ranges::nth_element(all, all.begin() + 2 * kSteps);
  EXPECT_NEAR(all[2 * kSteps], 0.5 * std::exp(4) / 89.3, 0.02);
}

TEST(Injector, FixedFactorsOfSlowNodesAndMixedFleets) {
  const auto factors = [](const char* name, int ranks) {
    const Injector injector(name, 1, ranks);
    std::vector<double> all;
    for (int r = 0; r < ranks; ++r) all.push_back(1 + in_step(injector, r, 9));
    return all;
  };
  EXPECT_THAT(factors("S5", 4), ElementsAre(1.5, 1, 1, 1));
  EXPECT_THAT(factors("S6", 4), ElementsAre(1, 1, 1.5, 2));
  EXPECT_THAT(factors("S6", 8), ElementsAre(1, 1, 1, 1, 1.5, 1.5, 2, 2));
  EXPECT_THAT(factors("rank=2:+0.5,rank=1:x3,rank=2:+0.25", 3), ElementsAre(1, 3, 1.75));
  const Injector loader("loader=2:+1", 1, 3);
  EXPECT_EQ(loader.loader(2, 4), 1);
  EXPECT_EQ(loader.loader(1, 4), 0);
  EXPECT_EQ(in_step(loader, 2, 4), 0);
  EXPECT_THAT(loader.delayed_ranks(4), ElementsAre(2));
  EXPECT_THAT(Injector("S6", 1, 4).delayed_ranks(4), ElementsAre(2, 3));
}

TEST(Injector, BurstsHaveTheirGapsLengthsAndRanks) {
  constexpr int kRanks = 4, kSteps = 400'000;
  const Injector injector("S7", 11, kRanks);
  std::vector<double> lengths, gaps;
  std::vector<int> hits(kRanks);
  int now = -1, begin = 0, end = 0;  // rank of the burst that the walk is in
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<int> late = injector.delayed_ranks(step);
    ASSERT_LE(late.size(), 1u) << "bursts overlap at step " << step;
    const int rank = late.empty() ? -1 : late[0];
    if (rank == now) continue;
    if (now >= 0) lengths.push_back(step - begin), end = step;
    if (rank >= 0) {
      gaps.push_back(step - end), begin = step;
      ++hits[static_cast<std::size_t>(rank)];
      EXPECT_DOUBLE_EQ(in_step(injector, rank, step), 0.75);
    }
    now = rank;
  }
  const auto mean = [](const std::vector<double>& x) {
    return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
  };
  const auto deviation = [&](const std::vector<double>& x) {
    double sum = 0;
    for (const double v : x) sum += (v - mean(x)) * (v - mean(x));
    return std::sqrt(sum / static_cast<double>(x.size()));
  };
  const double n = static_cast<double>(lengths.size());
  ASSERT_GT(n, 900);
  EXPECT_NEAR(mean(gaps), 240.5, 5 * 240 / std::sqrt(n));
  EXPECT_NEAR(deviation(gaps), 240, 30) << "exponential";
  EXPECT_NEAR(mean(lengths), 120, 5 * 20 / std::sqrt(n));
  EXPECT_NEAR(deviation(lengths), 20, 2.5);
  for (const int h : hits) EXPECT_NEAR(h, n / kRanks, 5 * std::sqrt(n * 0.25 * 0.75));
  const Injector longer("S7", 11, kRanks, 2'000'000);
  for (int step = 0; step < 5000; ++step)
    ASSERT_EQ(longer.delayed_ranks(step), injector.delayed_ranks(step));
}

TEST(Injector, LinksDelayTransfersOnly) {
  const Injector one("S8", 1, 4), all("S8v", 1, 4);
  EXPECT_EQ(one.comm_factor(1, 3), 6);
  EXPECT_EQ(one.comm_factor(0, 3), 1);
  EXPECT_EQ(in_step(one, 1, 3), 0);
  std::vector<double> factors;
  for (int step = 0; step < 20000; ++step) factors.push_back(all.comm_factor(step % 4, step));
  std::ranges::sort(factors);
  EXPECT_EQ(factors.front(), 1);
  EXPECT_NEAR(factors[10000], 1, 0.02);
  EXPECT_NEAR(factors[19800], 3, 0.15);
}

TEST(Injector, LongSamplesAreATenthAndMostlyOfOneClass) {
  const Injector injector("S9", 1, 4);
  ASSERT_TRUE(injector.by_content());
  constexpr int kSamples = 50000;
  int longs = 0, of_class = 0, without_labels = 0;
  for (std::int64_t id = 0; id < kSamples; ++id) {
    const std::int32_t label = static_cast<std::int32_t>(id % 10);
    const double factor = injector.content({&id, 1}, {&label, 1});
    ASSERT_TRUE(factor == 1 || factor == 3);
    longs += factor == 3;
    of_class += factor == 3 && label == 0;
    without_labels += injector.content({&id, 1}, {}) == 3;
  }
  EXPECT_NEAR(longs, kSamples * 0.1, 400);
  EXPECT_NEAR(of_class, longs * 0.46, 250);
  EXPECT_NEAR(without_labels, kSamples * 0.1, 400);
  std::vector<std::int64_t> ids(100);
  std::iota(ids.begin(), ids.end(), 0);
  double mean = 0;
  for (const std::int64_t& id : ids) mean += injector.content({&id, 1}, {}) / 100;
  EXPECT_NEAR(injector.content(ids, {}), mean, 1e-9);
}

TEST(Injector, StallAndDeathComeOnceAtAThirdAndTwoThirds) {
  const Injector injector("S10", 1, 4, 300);
  for (int rank = 0; rank < 4; ++rank)
    for (int step = 1; step <= 300; ++step) {
      EXPECT_EQ(injector.stop_seconds(rank, step), rank == 1 && step == 100 ? 20 : 0);
      EXPECT_EQ(injector.kills(rank, step), rank == 3 && step == 200);
    }
  EXPECT_EQ(injector.text(), "stop=1@100:20s,kill=3@200");
}

TEST(Injector, EveryScenarioNameIsATerm) {
  const std::vector<std::string> names = Injector::scenario_names();
  EXPECT_EQ(names.size(), 12u);
  for (const std::string& name : names) EXPECT_TRUE(Injector(name, 1, 4, 30).active()) << name;
}

TEST(Injector, ErrorsNameTheTerm) {
  const auto expect_error = [](const std::string& text, const std::string& found,
                               const std::string& expected) {
    try {
      const Injector injector(text, 1, 4);
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::settings);
      EXPECT_THAT(e.what(), HasSubstr("--inject: expected "));
      EXPECT_THAT(e.what(), HasSubstr("'" + found + "'"));
      EXPECT_THAT(e.what(), HasSubstr(expected));
    }
  };
  expect_error("S11", "S11", "rank=R:+A");
  expect_error("S0,rank=1:-1", "rank=1:-1", "rank=R:+A");
  expect_error("S0,", "", "rank=R:+A");
  expect_error("noise=0.1x", "noise=0.1x", "noise=A");
  expect_error("noise=nan", "noise=nan", "noise=A");
  expect_error("stop=1@5:20", "stop=1@5:20", "stop=R@N:As");
  expect_error("noise=0.1,rank=4:+1", "rank=4:+1", "ranks from 0 to 3");
  expect_error("rank=1:x0.5", "rank=1:x0.5", "a factor of at least 1");
  expect_error("random=5:+1", "random=5:+1", "1 to 4 random ranks");
  expect_error("random=0:+1", "random=0:+1", "1 to 4 random ranks");
  expect_error("S10", "S10", "at least 3 steps");
}

}  // namespace
}  // namespace sidestep
