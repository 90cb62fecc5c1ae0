#include "core/optim/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "tests/harness/allocation_count.h"

namespace sidestep {
namespace {

/// Sizes with and without padding; neighbours that agree and disagree about decay.
std::vector<ParamSpec> specs() {
  const Init init{Init::Kind::uniform, 0.5};
  return {{"a.weight", {33, 31}, init, true}, {"a.bias", {33}, init, false},
          {"b.weight", {16}, init, true},     {"c.weight", {1}, init, true},
          {"c.bias", {1}, init, false},       {"d.bias", {17}, init, false}};
}

std::vector<ParamId> all_params() {
  std::vector<ParamId> order(specs().size());
  std::iota(order.rbegin(), order.rend(), 0);
  return order;
}

/// A store with an optimizer and random gradients that depend on the step and the element only.
struct Fixture {
  explicit Fixture(const OptimizerConfig& config)
      : store(specs(), all_params(), Device{}), optimizer(make_optimizer(config, store)) {
    store.initialize(7);
  }

  void set_gradients(std::int64_t step) {
    for (ParamId p = 0; p < store.count(); ++p) {
      const View grad = store.grad(p);
      for (std::int64_t i = 0; i < grad.numel(); ++i) {
        grad.as<float>()[i] = gradient(p, step, i);
      }
    }
  }

  float gradient(ParamId p, std::int64_t step, std::int64_t i) const {
    const auto key = rng_key(1, store.spec(p).name, static_cast<std::uint64_t>(step));
    return 8 * random_uniform(key, static_cast<std::uint64_t>(i)) - 4;
  }

  void update(std::int64_t step, double lr, float scale, std::span<const ParamId> params) {
    UpdateScalars scalars = optimizer->scalars(lr, step);
    scalars.grad_scale = scale;
    optimizer->update(stream, store, params, &scalars);
    stream.synchronize();
  }

  std::vector<float> flat(const View& view) const {
    return {view.as<float>(), view.as<float>() + view.numel()};
  }

  Stream stream = Stream::create({}, "update", StreamMode::direct);
  ParamStore store;
  std::unique_ptr<Optimizer> optimizer;
};

/// The published rules in float64, one element at a time.
struct Reference {
  const OptimizerConfig& config;
  double w = 0, first = 0, second = 0;

  void step(double g, double lr, std::int64_t t, bool decay) {
    const double wd = decay ? config.weight_decay : 0;
    if (config.name == "sgd") {
      g += wd * w;
      first = config.momentum * first + g;
      w -= lr * (config.nesterov ? g + config.momentum * first : first);
      return;
    }
    first = config.beta1 * first + (1 - config.beta1) * g;
    second = config.beta2 * second + (1 - config.beta2) * g * g;
    const double mean = first / (1 - std::pow(config.beta1, static_cast<double>(t)));
    const double square = second / (1 - std::pow(config.beta2, static_cast<double>(t)));
    w -= lr * (mean / (std::sqrt(square) + config.epsilon) + wd * w);
  }
};

struct Case {
  std::string label;
  OptimizerConfig config;
};

class OptimizerTest : public ::testing::TestWithParam<Case> {};

TEST_P(OptimizerTest, FollowsTheFloat64Rule) {
  const OptimizerConfig& config = GetParam().config;
  Fixture f(config);
  std::vector<std::vector<Reference>> reference;
  for (ParamId p = 0; p < f.store.count(); ++p) {
    reference.emplace_back();
    for (const float w : f.flat(f.store.value(p))) reference.back().push_back({config, w});
  }
  constexpr double kScale = 0.25;
  for (std::int64_t t = 1; t <= 12; ++t) {
    const double lr = 0.01 * static_cast<double>(t);
    f.set_gradients(t);
    f.update(t, lr, kScale, f.store.order());
    for (ParamId p = 0; p < f.store.count(); ++p) {
      auto& elements = reference[static_cast<std::size_t>(p)];
      for (std::size_t i = 0; i < elements.size(); ++i) {
        elements[i].step(kScale * f.gradient(p, t, static_cast<std::int64_t>(i)), lr, t,
                         f.store.spec(p).decay);
      }
    }
  }
  for (ParamId p = 0; p < f.store.count(); ++p) {
    const auto& elements = reference[static_cast<std::size_t>(p)];
    const std::vector<float> w = f.flat(f.store.value(p));
    for (std::size_t i = 0; i < elements.size(); ++i) {
      ASSERT_NEAR(w[i], elements[i].w, 3e-6) << f.store.spec(p).name << " " << i;
    }
  }
}

TEST_P(OptimizerTest, DoesNotDependOnTheSplitIntoBuckets) {
  Fixture whole(GetParam().config);
  Fixture split(GetParam().config);
  for (std::int64_t t = 1; t <= 3; ++t) {
    whole.set_gradients(t);
    split.set_gradients(t);
    whole.update(t, 0.1, 0.5f, whole.store.order());
    const std::span<const ParamId> order = split.store.order();
    split.update(t, 0.1, 0.5f, order.subspan(3));
    split.update(t, 0.1, 0.5f, order.subspan(0, 1));
    split.update(t, 0.1, 0.5f, order.subspan(1, 2));
  }
  EXPECT_EQ(whole.flat(whole.store.values()), split.flat(split.store.values()));
  for (int slot = 0; slot < whole.store.slots(); ++slot) {
    EXPECT_EQ(whole.flat(whole.store.slot(slot)), split.flat(split.store.slot(slot)));
  }
}

TEST_P(OptimizerTest, TakesParametersInAnyOrderAndLeavesTheOthersAlone) {
  Fixture f(GetParam().config);
  f.set_gradients(1);
  const std::vector<ParamId> some{5, 0, 3};
  std::vector<std::vector<float>> before;
  for (ParamId p = 0; p < f.store.count(); ++p) before.push_back(f.flat(f.store.value(p)));
  f.update(1, 0.1, 1.0f, some);
  for (ParamId p = 0; p < f.store.count(); ++p) {
    const bool chosen = std::find(some.begin(), some.end(), p) != some.end();
    EXPECT_EQ(f.flat(f.store.value(p)) != before[static_cast<std::size_t>(p)], chosen) << p;
  }
}

TEST_P(OptimizerTest, PaddingStaysZero) {
  Fixture f(GetParam().config);
  for (std::int64_t t = 1; t <= 3; ++t) {
    f.set_gradients(t);
    f.update(t, 0.1, 1.0f, f.store.order());
  }
  std::vector<View> flats{f.store.values()};
  for (int slot = 0; slot < f.store.slots(); ++slot) flats.push_back(f.store.slot(slot));
  int padding = 0;
  for (ParamId p = 0; p < f.store.count(); ++p) {
    const std::int64_t end = f.store.offset(p) + f.store.padded_numel(p);
    for (std::int64_t i = f.store.offset(p) + f.store.value(p).numel(); i < end; ++i) {
      for (const View& flat : flats) EXPECT_EQ(flat.as<float>()[i], 0.0f);
      ++padding;
    }
  }
  EXPECT_GT(padding, 0);
}

TEST_P(OptimizerTest, ZeroGradientsWithoutDecayLeaveNewWeightsAlone) {
  OptimizerConfig config = GetParam().config;
  config.weight_decay = 0;
  Fixture f(config);
  const std::vector<float> before = f.flat(f.store.values());
  f.update(1, 0.1, 1.0f, f.store.order());
  EXPECT_EQ(f.flat(f.store.values()), before);
}

TEST_P(OptimizerTest, DecayActsOnlyWhereTheSpecSaysSo) {
  OptimizerConfig without = GetParam().config;
  without.weight_decay = 0;
  OptimizerConfig with = without;
  with.weight_decay = 0.1;
  Fixture plain(without);
  Fixture decayed(with);
  for (Fixture* f : {&plain, &decayed}) {
    f->set_gradients(1);
    f->update(1, 0.1, 1.0f, f->store.order());
  }
  for (ParamId p = 0; p < plain.store.count(); ++p) {
    const bool changed = plain.flat(plain.store.value(p)) != decayed.flat(decayed.store.value(p));
    EXPECT_EQ(changed, plain.store.spec(p).decay) << plain.store.spec(p).name;
  }
}

TEST_P(OptimizerTest, AllocatesNothing) {
  Fixture f(GetParam().config);
  f.set_gradients(1);
  UpdateScalars scalars = f.optimizer->scalars(0.1, 1);
  const std::int64_t before = testing::allocation_count();
  ASSERT_GT(before, 0) << "nothing is counted";
  f.optimizer->update(f.stream, f.store, f.store.order(), &scalars);
  scalars = f.optimizer->scalars(0.1, 2);
  f.optimizer->update(f.stream, f.store, f.store.order(), &scalars);
  EXPECT_EQ(testing::allocation_count(), before);
}

TEST_P(OptimizerTest, ReadsItsScalarsWhenItRuns) {
  Fixture now(GetParam().config);
  Fixture late(GetParam().config);
  now.set_gradients(1);
  late.set_gradients(1);
  now.update(1, 0.3, 0.125f, now.store.order());

  UpdateScalars scalars;  // the wrong ones
  Stream stream = Stream::create({}, "late");
  stream.host([&] {
    scalars = late.optimizer->scalars(0.3, 1);
    scalars.grad_scale = 0.125f;
  });
  late.optimizer->update(stream, late.store, late.store.order(), &scalars);
  stream.synchronize();
  EXPECT_EQ(now.flat(now.store.values()), late.flat(late.store.values()));
}

INSTANTIATE_TEST_SUITE_P(
    Rules, OptimizerTest,
    ::testing::Values(
        Case{"sgd", {.name = "sgd", .momentum = 0}},
        Case{"momentum", {.name = "sgd", .momentum = 0.9, .weight_decay = 0.01}},
        Case{"nesterov", {.name = "sgd", .momentum = 0.8, .nesterov = true, .weight_decay = 0.1}},
        Case{"adamw", {.name = "adamw", .weight_decay = 0.1}},
        Case{"adamw_betas", {.name = "adamw", .beta1 = 0.5, .beta2 = 0.95, .epsilon = 1e-3}}),
    [](const auto& test) { return test.param.label; });

/// One parameter of one element, so that the numbers below can be done by hand.
struct OneWeight {
  explicit OneWeight(const OptimizerConfig& config)
      : store({{"w", {1}, {}, true}}, std::vector<ParamId>{0}, Device{}),
        optimizer(make_optimizer(config, store)) {}

  float step(std::int64_t t, double lr, float g) {
    store.grad(0).as<float>()[0] = g;
    const UpdateScalars scalars = optimizer->scalars(lr, t);
    optimizer->update(stream, store, store.order(), &scalars);
    stream.synchronize();
    return w();
  }
  float& w() { return store.value(0).as<float>()[0]; }

  Stream stream = Stream::create({}, "update", StreamMode::direct);
  ParamStore store;
  std::unique_ptr<Optimizer> optimizer;
};

TEST(Sgd, MomentumByHand) {
  OneWeight one({.name = "sgd", .momentum = 0.5, .weight_decay = 0.25});
  one.w() = 4;
  EXPECT_EQ(one.step(1, 0.5, 1), 3.0f);       // g 1+1, v 2
  EXPECT_EQ(one.step(2, 0.5, 1.25), 1.5f);    // g 1.25+0.75, v 1+2
  EXPECT_EQ(one.step(3, 1.0, -0.375), 0.0f);  // g -0.375+0.375, v 1.5
  EXPECT_EQ(one.store.slot(0, 0).as<float>()[0], 1.5f);
}

TEST(Sgd, NesterovByHand) {
  OneWeight one({.name = "sgd", .momentum = 0.5, .nesterov = true});
  EXPECT_EQ(one.step(1, 0.5, 2), -1.5f);   // v 2, direction 2+1
  EXPECT_EQ(one.step(2, 0.5, 0), -1.75f);  // v 1, direction 0.5
}

TEST(Adamw, FirstStepIsTheSignTimesTheRateAfterDecay) {
  OneWeight one({.name = "adamw", .epsilon = 1e-12, .weight_decay = 0.5});
  one.w() = 2;
  EXPECT_FLOAT_EQ(one.step(1, 0.1, -123.0f), 2 * 0.95f + 0.1f);
  EXPECT_FLOAT_EQ(one.store.slot(0, 0).as<float>()[0], -12.3f);
  EXPECT_FLOAT_EQ(one.store.slot(1, 0).as<float>()[0], 15.129f);
}

TEST(Adamw, SecondStepByHand) {
  OneWeight one({.name = "adamw", .beta1 = 0.5, .beta2 = 0.75, .epsilon = 1e-12});
  one.step(1, 0.1, 1);
  // m = 0.5*0.5 + 0.5*3 = 1.75, c1 = 0.75; v = 0.75*0.25 + 0.25*9 = 2.4375, c2 = 0.4375
  const double wanted = -0.1 - 0.1 * (1.75 / 0.75) / std::sqrt(2.4375 / 0.4375);
  EXPECT_NEAR(one.step(2, 0.1, 3), wanted, 1e-7);
}

TEST(Optimizer, NamesItsSlots) {
  OneWeight sgd({.name = "sgd"});
  ASSERT_EQ(sgd.store.slots(), 1);
  EXPECT_EQ(sgd.store.slot_name(0), "momentum");
  OneWeight adamw({.name = "adamw"});
  ASSERT_EQ(adamw.store.slots(), 2);
  EXPECT_EQ(adamw.store.slot_name(0), "exp_avg");
  EXPECT_EQ(adamw.store.slot_name(1), "exp_avg_sq");
}

void expect_settings_error(const OptimizerConfig& config, const std::string& text) {
  try {
    OneWeight{config};
    FAIL() << "expected an error about " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::settings);
    EXPECT_THAT(error.what(), ::testing::HasSubstr(text));
  }
}

TEST(Optimizer, SaysWhatIsWrong) {
  expect_settings_error({.name = "adam"}, "expected one of sgd, adamw, found \"adam\"");
  expect_settings_error({.name = "sgd", .momentum = 1}, "momentum in [0, 1), found 1");
  expect_settings_error({.name = "sgd", .momentum = 0, .nesterov = true}, "Nesterov");
  expect_settings_error({.name = "adamw", .beta2 = -0.1}, "beta2 in [0, 1), found -0.1");
  expect_settings_error({.name = "adamw", .epsilon = 0}, "epsilon above 0");
  expect_settings_error({.name = "sgd", .weight_decay = NAN}, "weight decay");
}

}  // namespace
}  // namespace sidestep
