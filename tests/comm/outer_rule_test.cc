// The outer rules against the papers' recursions, written out in float64.
#include "comm/outer_rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/base/rng.h"
#include "tests/comm/stores.h"

namespace sidestep::testing {
namespace {

constexpr std::int64_t kN = 48;
constexpr std::size_t kSize = 48;
constexpr double kTolerance = 2e-5;  // float32 buffers of size 10, after 20 rounds
using Vector = std::vector<double>;

/// The mean change of round k.
Vector change(int k) {
  Vector g(kSize);
  const std::uint64_t key = rng_key(5, "change", static_cast<std::uint64_t>(k));
  for (std::size_t i = 0; i < kSize; ++i) g[i] = 0.2f * random_uniform(key, i) - 0.05f;
  return g;
}

/// The common model under the rule, fed with changes.
class Outer {
 public:
  explicit Outer(const OuterRule& rule) : outer_(rule, store_) {}

  void round(const Vector& g, double weight = 3, double local_lr = 1) {
    outer_.set(scalars_, weight, local_lr);
    for (std::size_t i = 0; i < kSize; ++i) sum()[i] = static_cast<float>(g[i] * weight);
    // in two buckets
    outer_.enqueue(stream_, 0, 16, before_.view(0, Shape{kN}, DType::f32), store_.grads(),
                   &scalars_);
    outer_.enqueue(stream_, 16, kN, before_.view(0, Shape{kN}, DType::f32), store_.grads(),
                   &scalars_);
  }
  Vector weights() const {
    const float* const w = store_.values().as<float>();
    return {w, w + kSize};
  }
  Vector momentum() const {
    const float* const m = outer_.momentum().as<float>();
    return {m, m + kSize};
  }
  const OuterUpdate& update() const { return outer_; }

 private:
  float* sum() { return store_.grads().as<float>(); }
  ParamStore store_ = store_of({kN});
  Buffer before_{Device{}, kSize * sizeof(float)};  // as the store: zeros
  Stream stream_ = Stream::create(Device{}, "update", StreamMode::direct);
  MeanScalars scalars_;
  OuterUpdate outer_;
};

void expect_near(const Vector& found, const Vector& expected, double tolerance = kTolerance) {
  for (std::size_t i = 0; i < kSize; ++i) ASSERT_NEAR(found[i], expected[i], tolerance) << i;
}

TEST(OuterRule, PlainAveragingTakesTheMeanAndNeedsNoBuffer) {
  Outer outer({});
  EXPECT_EQ(outer.update().bytes(), 0u);
  Vector expected(kSize);
  for (int k = 0; k < 20; ++k) {
    outer.round(change(k));
    for (std::size_t i = 0; i < kSize; ++i) expected[i] -= change(k)[i];
    expect_near(outer.weights(), expected);
  }
}

/// W(t) = W(t-1) + Delta(t), Delta = eta Delta + zeta G with G = mean - W(t-1) (Chen and Huo 2016).
TEST(OuterRule, HeavyBallIsClassicBlockMomentum) {
  constexpr double kZeta = 0.7, kEta = 0.8;
  Outer outer({.lr = kZeta, .momentum = kEta});
  Vector w(kSize), delta(kSize);
  for (int k = 0; k < 20; ++k) {
    outer.round(change(k));
    for (std::size_t i = 0; i < kSize; ++i) {
      delta[i] = kEta * delta[i] - kZeta * change(k)[i];
      w[i] += delta[i];
    }
    expect_near(outer.weights(), w);
  }
}

/// Block momentum with Nesterov's look-ahead: workers start from V = W + eta Delta, and their
/// mean's distance from V is G. The rule works in the coordinates V, as DiLoCo's outer Nesterov SGD
/// does.
TEST(OuterRule, NesterovIsBlockMomentumInLookAheadCoordinates) {
  constexpr double kZeta = 0.7, kEta = 0.8;
  Outer outer({.lr = kZeta, .momentum = kEta, .nesterov = true});
  Vector w(kSize), delta(kSize);
  for (int k = 0; k < 20; ++k) {
    outer.round(change(k));
    Vector look_ahead(kSize);
    for (std::size_t i = 0; i < kSize; ++i) {
      delta[i] = kEta * delta[i] - kZeta * change(k)[i];
      w[i] += delta[i];
      look_ahead[i] = w[i] + kEta * delta[i];
    }
    expect_near(outer.weights(), look_ahead);
  }
}

/// u = beta u + G / gamma; w -= alpha gamma u (SlowMo, arXiv 1910.00643).
TEST(OuterRule, SlowMoFollowsTheLocalRate) {
  constexpr double kAlpha = 0.9, kBeta = 0.6;
  Outer slowmo({.lr = kAlpha, .momentum = kBeta, .by_lr = true});
  Outer heavy({.lr = kAlpha, .momentum = kBeta});
  Vector w(kSize), u(kSize);
  double gamma = 0.5;
  for (int k = 0; k < 20; ++k) {
    if (k == 10) {
      expect_near(slowmo.weights(), heavy.weights());  // equal while the rate is constant
      gamma = 0.05;
    }
    slowmo.round(change(k), 3, gamma);
    heavy.round(change(k), 3, gamma);
    for (std::size_t i = 0; i < kSize; ++i) {
      u[i] = kBeta * u[i] + change(k)[i] / gamma;
      w[i] -= kAlpha * gamma * u[i];
    }
    expect_near(slowmo.weights(), w, 10 * kTolerance);
  }
  EXPECT_GT(std::abs(slowmo.weights()[0] - heavy.weights()[0]), 0.01);
}

TEST(OuterRule, ARateOfZeroLeavesSlowMoFinite) {
  Outer slowmo({.lr = 1, .momentum = 0.5, .by_lr = true});
  slowmo.round(change(0), 3, 0.1);
  const Vector before = slowmo.weights();
  slowmo.round(Vector(kSize), 3, 0);
  EXPECT_EQ(slowmo.weights(), before);
}

/// How far the last of 200 rounds with the same change has moved the model.
double speed(bool nesterov) {
  Outer outer({.lr = 0.5, .momentum = 0.75, .nesterov = nesterov});
  Vector g(kSize, 0.125);
  for (int k = 0; k < 199; ++k) outer.round(g);
  const double before = outer.weights()[0];
  outer.round(g);
  return before - outer.weights()[0];
}

TEST(OuterRule, AConstantChangeGivesTheSameSpeedInBothForms) {
  constexpr double kExpected = 0.5 * 0.125 / (1 - 0.75);
  EXPECT_NEAR(speed(false), kExpected, 1e-4);
  EXPECT_NEAR(speed(true), kExpected, 1e-4);
}

/// The form of public block-momentum code: the look-ahead model is stored as the base of the next
/// block, and the look-ahead is added again. It moves 1 + eta times as far.
TEST(OuterRule, KeepingTheLookAheadAsTheBaseMovesTooFar) {
  double base = 0, delta = 0, moved = 0;
  for (int k = 0; k < 200; ++k) {
    delta = 0.75 * delta - 0.5 * 0.125;
    const double next = base + delta + 0.75 * delta;
    moved = base - next;
    base = next;
  }
  EXPECT_NEAR(moved, (1 + 0.75) * speed(true), 1e-3);
}

TEST(OuterRule, ARoundWithoutWeightChangesNothing) {
  for (const bool nesterov : {false, true}) {
    Outer outer({.lr = 0.5, .momentum = 0.75, .nesterov = nesterov});
    outer.round(change(0));
    const Vector weights = outer.weights(), momentum = outer.momentum();
    outer.round(Vector(kSize), 0);
    EXPECT_EQ(outer.weights(), weights);
    EXPECT_EQ(outer.momentum(), momentum);
  }
}

}  // namespace
}  // namespace sidestep::testing
