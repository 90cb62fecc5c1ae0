// The op harness must flag ops that are wrong on purpose, each for its own reason.
#include "tests/harness/op_harness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "core/ops/ops.h"

namespace sidestep::testing {
namespace {

std::vector<TensorType> same(const Attrs&, std::span<const TensorType> in) { return {in[0]}; }

std::vector<TensorType> flat(const Attrs&, std::span<const TensorType> in) {
  return {{Shape{in[0].shape.numel()}, in[0].dtype}};
}

std::vector<MaybeValue> right_grad(GraphBuilder& builder, NodeRef node,
                                   std::span<const MaybeValue> dout, std::span<const bool>) {
  return {builder.apply1(ops::relu_grad, {*dout[0], node.out()[0]})};
}

std::vector<MaybeValue> identity_grad(GraphBuilder&, NodeRef, std::span<const MaybeValue> dout,
                                      std::span<const bool>) {
  return {dout[0]};
}

std::vector<MaybeValue> lost_grad(GraphBuilder&, NodeRef, std::span<const MaybeValue>,
                                  std::span<const bool>) {
  return {std::nullopt};
}

void relu_into(const float* x, float* y, std::int64_t n, float scale) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] > 0 ? x[i] * scale : 0.0f;
}

void run_right(OpContext& c) {
  c.stream.host([x = c.in[0].as<float>(), y = c.out[0].as<float>(), n = c.in[0].numel()] {
    relu_into(x, y, n, 1);
  });
}

void run_wrong_value(OpContext& c) {
  c.stream.host([x = c.in[0].as<float>(), y = c.out[0].as<float>(), n = c.in[0].numel()] {
    relu_into(x, y, n, 1.001f);
  });
}

void run_beyond_end(OpContext& c) {
  c.stream.host([x = c.in[0].as<float>(), y = c.out[0].as<float>(), n = c.in[0].numel()] {
    relu_into(x, y, n, 1);
    y[n] = 0;
  });
}

void run_before_start(OpContext& c) {
  c.stream.host([x = c.in[0].as<float>(), y = c.out[0].as<float>(), n = c.in[0].numel()] {
    relu_into(x, y, n, 1);
    y[-1] = 0;
  });
}

void run_changes_input(OpContext& c) {
  c.stream.host([x = c.in[0].as<float>(), y = c.out[0].as<float>(), n = c.in[0].numel()] {
    relu_into(x, y, n, 1);
    x[0] += 1;
  });
}

void run_leaves_last(OpContext& c) {
  c.stream.host([x = c.in[0].as<float>(), y = c.out[0].as<float>(), n = c.in[0].numel()] {
    relu_into(x, y, n - 1, 1);
  });
}

struct Calls final : OpState {
  int n = 0;
};

std::unique_ptr<OpState> prepare_calls(NodeRef, Device) { return std::make_unique<Calls>(); }

/// Each call is right within the tolerance, but a bit different.
void run_varying(OpContext& c) {
  c.stream.host([x = c.in[0].as<float>(), y = c.out[0].as<float>(), n = c.in[0].numel(),
                 calls = static_cast<Calls*>(c.state)] {
    relu_into(x, y, n, 1.0f + 2e-7f * static_cast<float>(calls->n++));
  });
}

std::vector<Tensor64> relu_reference(const Attrs&, std::span<const Tensor64> in) {
  Tensor64 y = in[0];
  for (double& v : y.values) v = v > 0 ? v : 0;
  return {y};
}

struct WrongOp {
  OpDef op;
  const char* flagged;  ///< kind of the problem to be found; empty for the right op
};

const WrongOp kWrongOps[] = {
    {{"right", same, right_grad, nullptr, run_right}, ""},
    {{"wrong_value", same, right_grad, nullptr, run_wrong_value}, "value:"},
    {{"wrong_type", flat, nullptr, nullptr, run_right}, "type:"},
    {{"wrong_gradient", same, identity_grad, nullptr, run_right}, "gradient:"},
    {{"lost_gradient", same, lost_grad, nullptr, run_right}, "gradient:"},
    {{"beyond_end", same, right_grad, nullptr, run_beyond_end}, "guard:"},
    {{"before_start", same, right_grad, nullptr, run_before_start}, "guard:"},
    {{"changes_input", same, right_grad, nullptr, run_changes_input}, "input:"},
    {{"leaves_last", same, right_grad, nullptr, run_leaves_last}, "repeat:"},
    {{"varying", same, right_grad, prepare_calls, run_varying}, "repeat:"},
};

class OpHarness : public ::testing::TestWithParam<WrongOp> {};

TEST_P(OpHarness, FlagsWhatIsWrong) {
  const WrongOp& wrong = GetParam();
  const OpCase test{std::string(wrong.op.name), &wrong.op, {normal({5, 7})}, {}, relu_reference};
  const OpReport report = check_op(test, Device{});
  if (*wrong.flagged == '\0') {
    EXPECT_THAT(report.problems, ::testing::IsEmpty());
    EXPECT_GT(report.comparisons, 35);
  } else {
    EXPECT_THAT(report.problems, ::testing::Contains(::testing::HasSubstr(wrong.flagged)));
  }
}

INSTANTIATE_TEST_SUITE_P(All, OpHarness, ::testing::ValuesIn(kWrongOps),
                         [](const auto& param) { return std::string(param.param.op.name); });

TEST(OpHarnessItself, FlagsThatNothingWasCompared) {
  const OpCase test{"empty", &kWrongOps[0].op, {normal({0, 3})}, {}, relu_reference};
  const OpReport report = check_op(test, Device{});
  EXPECT_THAT(report.problems, ::testing::ElementsAre(::testing::HasSubstr("no comparison")));
}

/// At a kink any slope between the one-sided ones is right, none beyond.
TEST(OpHarnessItself, AcceptsSubgradientsAtKinks) {
  const OpCase right{"kinks", &kWrongOps[0].op, {coarse({6, 6})}, {}, relu_reference};
  EXPECT_THAT(check_op(right, Device{}).problems, ::testing::IsEmpty());
  const OpCase wrong{"kinks", &kWrongOps[3].op, {coarse({6, 6})}, {}, relu_reference};
  EXPECT_THAT(check_op(wrong, Device{}).problems, ::testing::Not(::testing::IsEmpty()));
}

}  // namespace
}  // namespace sidestep::testing
