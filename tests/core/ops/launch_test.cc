// The launchers themselves on CPU streams; the op table runs them on GPUs.
#include "core/ops/launch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/base/host_device.h"
#include "core/base/rng.h"

namespace sidestep {
namespace {

struct Square {
  const float* x;
  float* y;
  SIDESTEP_HD void operator()(std::int64_t i) const { y[i] += x[i] * x[i]; }
};

struct Value {
  const float* x;
  SIDESTEP_HD double operator()(std::int64_t i) const { return x[i]; }
};

std::vector<float> draws(std::int64_t n) {
  std::vector<float> x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = random_normal(7, i);
  return x;
}

TEST(Launch, MapAndRowsVisitEachElementOnce) {
  Stream stream = Stream::create(Device{}, "launch");
  for (const std::int64_t n : {0, 1, 7, 16, 1001}) {
    const std::vector<float> x = draws(n);
    std::vector<float> y(x.size() + 1, 0.0f);
    launch_map(stream, n, Square{x.data(), y.data()});
    launch_rows(stream, n, Square{x.data(), y.data()});
    stream.synchronize();
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], x[i] * x[i] + x[i] * x[i]);
    EXPECT_EQ(y.back(), 0.0f);
  }
}

TEST(Launch, ReduceIsExactToFloat64AndRepeats) {
  Stream stream = Stream::create(Device{}, "launch");
  for (const std::int64_t n : {0, 1, 15, 16, 17, 100003}) {
    const std::vector<float> x = draws(n);
    long double wanted = 0;
    for (const float v : x) wanted += v;
    double first = -1, second = -1;
    launch_reduce(stream, n, &first, Value{x.data()});
    launch_reduce(stream, n, &second, Value{x.data()});
    stream.synchronize();
    EXPECT_NEAR(first, static_cast<double>(wanted), 1e-9);
    EXPECT_EQ(first, second);
  }
}

/// Work is enqueued in order with other work of the stream, not done at once.
TEST(Launch, KeepsStreamOrder) {
  Stream stream = Stream::create(Device{}, "launch");
  std::vector<float> x = {2};
  std::vector<float> y = {0};
  stream.host([&x] { x[0] = 3; });
  launch_map(stream, 1, Square{x.data(), y.data()});
  stream.synchronize();
  EXPECT_EQ(y[0], 9.0f);
}

}  // namespace
}  // namespace sidestep
