#include "core/optim/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/base/rng.h"

namespace sidestep {
namespace {

class NormTest : public testing::TestWithParam<StreamMode> {
 protected:
  double norm(std::vector<float> x) {
    double result = -1;
    Stream stream = Stream::create({}, "norm", GetParam());
    const View view{reinterpret_cast<std::byte*>(x.data()),
                    {static_cast<std::int64_t>(x.size())},
                    DType::f32,
                    {}};
    sum_of_squares(stream, view, &result);
    stream.synchronize();
    return result;
  }
};

std::vector<float> random_values(std::size_t n) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = random_uniform(rng_key(3, "norm"), i) - 0.5f;
  return x;
}

TEST_P(NormTest, SmallCasesAreExact) {
  EXPECT_EQ(norm({}), 0);
  EXPECT_EQ(norm({-3}), 9);
  EXPECT_EQ(norm({3, 4, 0, -12}), 169);
}

TEST_P(NormTest, AgreesWithALongDoubleSum) {
  for (const std::size_t n : {15u, 16u, 17u, 1000u, 100003u}) {
    const std::vector<float> x = random_values(n);
    long double sum = 0;
    for (const float value : x) sum += static_cast<long double>(value) * value;
    EXPECT_NEAR(norm(x), static_cast<double>(sum), 1e-12 * static_cast<double>(sum)) << n;
  }
}

TEST_P(NormTest, IsAccumulatedInFloat64) {
  std::vector<float> x(1 << 16, 1e-4f);
  x[0] = 1e3f;
  const double small = 1e-4f;
  EXPECT_NEAR(norm(x) - 1e6, 65535 * small * small, 1e-6);
  EXPECT_EQ(norm({3e38f}), static_cast<double>(3e38f) * 3e38f);
}

TEST_P(NormTest, RepeatsBitForBit) {
  const std::vector<float> x = random_values(54321);
  const double first = norm(x);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(norm(x), first);
}

TEST_P(NormTest, IsNotFiniteIfAnyElementIsNot) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    for (const std::size_t at : {0u, 17u, 999u}) {
      std::vector<float> x = random_values(1000);
      x[at] = bad;
      EXPECT_FALSE(std::isfinite(norm(x))) << bad << " at " << at;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Streams, NormTest,
                         testing::Values(StreamMode::direct, StreamMode::threaded),
                         [](const auto& test) {
                           return test.param == StreamMode::direct ? "direct" : "threaded";
                         });

/// The order depends on n only: direct and threaded streams agree bit for bit.
TEST(Norm, OrderDoesNotDependOnTheStream) {
  std::vector<float> x = random_values(4099);
  const View view{reinterpret_cast<std::byte*>(x.data()), {4099}, DType::f32, {}};
  double results[2];
  int i = 0;
  for (const StreamMode mode : {StreamMode::direct, StreamMode::threaded}) {
    Stream stream = Stream::create({}, "norm", mode);
    sum_of_squares(stream, view, &results[i++]);
    stream.synchronize();
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace sidestep
