#include "core/graph/param_store.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/base/error.h"

namespace sidestep {
namespace {

std::vector<ParamSpec> three() {
  return {{.name = "a", .shape = Shape{3, 5}, .init = {Init::Kind::uniform, 0.5}},
          {.name = "b", .shape = Shape{5}, .init = {Init::Kind::ones}},
          {.name = "c", .shape = Shape{32}, .init = {Init::Kind::normal, 2.0}}};
}

TEST(ParamStore, LaysParametersOutInReadyOrder) {
  const std::vector<ParamId> order = {2, 0, 1};
  ParamStore store(three(), order, Device{});
  EXPECT_EQ(store.offset(2), 0);
  EXPECT_EQ(store.offset(0), 32);
  EXPECT_EQ(store.offset(1), 48);
  EXPECT_EQ(store.flat_numel(), 64);
  EXPECT_EQ(store.param_numel(), 15 + 5 + 32);
  EXPECT_EQ(store.value(0).shape, (Shape{3, 5}));
}

TEST(ParamStore, RefusesAnOrderThatIsNoPermutation) {
  const std::vector<ParamId> twice = {0, 0, 1};
  EXPECT_THROW(ParamStore(three(), twice, Device{}), Error);
  const std::vector<ParamId> few = {0, 1};
  EXPECT_THROW(ParamStore(three(), few, Device{}), Error);
}

TEST(ParamStore, InitialValuesDependOnNameAndElementOnly) {
  const std::vector<ParamId> forward = {0, 1, 2}, backward = {2, 1, 0};
  ParamStore one(three(), forward, Device{}), other(three(), backward, Device{});
  one.initialize(11);
  other.initialize(11);
  double sum = 0, squares = 0;
  for (ParamId p = 0; p < 3; ++p) {
    const auto* a = one.value(p).as<float>();
    const auto* b = other.value(p).as<float>();
    for (std::int64_t i = 0; i < one.value(p).numel(); ++i) {
      ASSERT_EQ(a[i], b[i]);
      if (p == 0) {
        EXPECT_LE(std::abs(a[i]), 0.5f);
      }
      if (p == 1) {
        EXPECT_EQ(a[i], 1.0f);
      }
      if (p == 2) {
        sum += a[i];
        squares += a[i] * a[i];
      }
    }
  }
  EXPECT_NEAR(sum / 32, 0, 1.5);
  EXPECT_NEAR(std::sqrt(squares / 32), 2.0, 1.0);
  other.initialize(12);
  EXPECT_NE(one.value(0).as<float>()[0], other.value(0).as<float>()[0]);
}

TEST(ParamStore, PaddingStaysZero) {
  const std::vector<ParamId> order = {0, 1, 2};
  ParamStore store(three(), order, Device{});
  store.initialize(1);
  const auto* flat = store.values().as<float>();
  EXPECT_EQ(flat[15], 0.0f);
  for (std::int64_t i = store.offset(1) + 5; i < store.offset(2); ++i) EXPECT_EQ(flat[i], 0.0f);
}

TEST(ParamStore, SlotsAreZeroAndNamedOnce) {
  const std::vector<ParamId> order = {0, 1, 2};
  ParamStore store(three(), order, Device{});
  const int slot = store.add_slot("momentum");
  EXPECT_EQ(store.slot_name(slot), "momentum");
  EXPECT_EQ(store.slot(slot).numel(), store.flat_numel());
  EXPECT_EQ(store.slot(slot, 2).as<float>()[0], 0.0f);
  EXPECT_THROW(store.add_slot("momentum"), Error);
  EXPECT_EQ(store.bytes(), 3u * 64 * 4);
}

}  // namespace
}  // namespace sidestep
