// The program's own executor and optimizers against curves recorded with PyTorch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <string>
#include <tuple>

#include "core/ops/threads.h"
#include "tests/core/golden/golden_case.h"

namespace sidestep::golden {
namespace {

constexpr double kFirstLossTolerance = 1e-6;  // relative
constexpr double kGradientTolerance = 1e-4;   // relative, per parameter
constexpr double kSpreads = 3;                // as far from PyTorch as this many times its spread
constexpr double kSpreadFloor = 1e-5;

double allowed(const Golden& golden) { return kSpreads * std::max(golden.spread, kSpreadFloor); }

class GoldenTest : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  /// One thread: fixed sums, and no waiting for cores that other tests use.
  void SetUp() override { set_compute_threads(1); }

  const Golden golden_ = load(std::get<0>(GetParam()), std::get<1>(GetParam()));
};

TEST_P(GoldenTest, HasSomethingToCompare) {
  ASSERT_EQ(golden_.losses.size(), 50u);
  EXPECT_LE(golden_.losses.back(), 0.8 * golden_.losses.front());
  EXPECT_LE(golden_.spread, 1e-3);
  EXPECT_GE(golden_.parameters.size(), 6u);
}

TEST_P(GoldenTest, FirstLoss) {
  Training training(golden_, golden_.optimizer, golden_.lr);
  EXPECT_NEAR(training.compute(), golden_.first_loss, kFirstLossTolerance * golden_.first_loss);
}

/// Relative distance of the kept elements; counts them.
double gradient_distance(const float* dw, std::int64_t size, double scale, const Parameter& wanted,
                         std::int64_t& compared) {
  const auto kept = static_cast<std::int64_t>(wanted.gradient.size());
  double difference = 0;
  double norm = 0;
  for (std::int64_t k = 0; k < kept; ++k) {
    const double reference = wanted.gradient[static_cast<std::size_t>(k)];
    difference += std::pow(scale * dw[k * size / kept] - reference, 2);
    norm += reference * reference;
    ++compared;
  }
  return std::sqrt(difference / norm);
}

TEST_P(GoldenTest, FirstGradients) {
  Training training(golden_, golden_.optimizer, golden_.lr);
  training.compute();
  const double scale = 1.0 / static_cast<double>(golden_.batch);
  const ParamStore& store = training.params();
  ASSERT_EQ(static_cast<std::size_t>(store.count()), golden_.parameters.size());
  std::int64_t compared = 0;
  for (const Parameter& wanted : golden_.parameters) {
    for (ParamId p = 0; p < store.count(); ++p) {
      if (store.spec(p).name != wanted.name) continue;
      ASSERT_EQ(store.spec(p).shape, Shape(wanted.shape)) << wanted.name;
      const std::int64_t size = store.grad(p).numel();
      const float* const dw = store.grad(p).as<float>();
      EXPECT_LE(gradient_distance(dw, size, scale, wanted, compared), kGradientTolerance)
          << wanted.name;
      double squares = 0;
      for (std::int64_t i = 0; i < size; ++i) squares += std::pow(scale * dw[i], 2);
      EXPECT_NEAR(std::sqrt(squares), wanted.gradient_norm,
                  kGradientTolerance * wanted.gradient_norm)
          << wanted.name;
    }
  }
  EXPECT_GE(compared, 1000) << "elements compared";
}

TEST_P(GoldenTest, Losses) {
  Training training(golden_, golden_.optimizer, golden_.lr);
  const double off = distance(train(training, golden_.losses.size()), golden_.losses);
  EXPECT_LE(off, allowed(golden_));
  std::cout << "  distance " << off << ", allowed " << allowed(golden_) << "\n";
}

/// Negative controls: the bound is narrow enough to notice a slightly wrong update.
TEST_P(GoldenTest, NoticesWrongSettings) {
  OptimizerConfig no_decay = golden_.optimizer;
  no_decay.weight_decay = 0;
  OptimizerConfig other_momentum = golden_.optimizer;
  other_momentum.momentum -= 0.005;
  other_momentum.beta1 -= 0.005;
  const std::pair<OptimizerConfig, double> wrong[] = {{no_decay, golden_.lr},
                                                      {other_momentum, golden_.lr},
                                                      {golden_.optimizer, 1.005 * golden_.lr}};
  for (const auto& [optimizer, lr] : wrong) {
    Training training(golden_, optimizer, lr);
    EXPECT_GT(distance(train(training, golden_.losses.size()), golden_.losses), allowed(golden_))
        << optimizer.name << " decay " << optimizer.weight_decay << " lr " << lr;
  }
}

INSTANTIATE_TEST_SUITE_P(Curves, GoldenTest,
                         testing::Combine(testing::Values("mlp", "lenet"),
                                          testing::Values("sgd", "adamw")),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_" + std::get<1>(test.param);
                         });

}  // namespace
}  // namespace sidestep::golden
