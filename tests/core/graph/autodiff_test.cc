#include "core/graph/autodiff.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/ops/ops.h"

namespace sidestep {
namespace {

struct Mlp {
  GraphBuilder b;
  ValueId loss = kNone;
};

/// x -> linear(w1) -> relu -> linear(w2) -> softmax_xent, with w1 square so that it can be tied.
void build(Mlp& m, bool tied) {
  const ValueId x = m.b.input("x", {Shape{2, 4}});
  const ValueId y = m.b.input("y", {Shape{2}, DType::i32});
  const ValueId w1 = m.b.param({.name = "w1", .shape = Shape{4, 4}, .init = {}});
  const ValueId w2 = tied ? w1 : m.b.param({.name = "w2", .shape = Shape{4, 4}, .init = {}});
  const ValueId h = m.b.apply1(ops::relu, {m.b.apply1(ops::linear, {x, w1})});
  const ValueId logits = m.b.apply1(ops::linear, {h, w2});
  const ValueId in[] = {logits, y};
  m.loss = m.b.apply(ops::softmax_xent, in)[0];
}

TEST(Autodiff, LastLayerIsReadyFirst) {
  Mlp m;
  build(m, false);
  const Backward back = build_backward(m.b, m.loss);
  EXPECT_EQ(back.ready_order, (std::vector<ParamId>{1, 0}));
  EXPECT_LT(back.final_after[1], back.final_after[0]);
  for (ParamId p = 0; p < 2; ++p)
    EXPECT_EQ(m.b.type(back.grads[static_cast<std::size_t>(p)]),
              m.b.type(m.b.graph().params()[static_cast<std::size_t>(p)]));
}

// The gradient with respect to the hidden layer still reads w2; nothing in backward reads w1,
// because no gradient with respect to x is wanted.
TEST(Autodiff, LastReadersAreKnown) {
  Mlp m;
  build(m, false);
  const Backward back = build_backward(m.b, m.loss);
  EXPECT_GE(back.last_reader[1], back.first_node);
  EXPECT_LT(back.last_reader[0], back.first_node);
}

TEST(Autodiff, ATiedParameterIsFinalAfterTheSumOfItsUses) {
  Mlp m;
  build(m, true);
  const Backward back = build_backward(m.b, m.loss);
  ASSERT_EQ(back.grads.size(), 1u);
  const Node& last = m.b.graph().node(back.final_after[0]);
  EXPECT_EQ(last.op->name, "add");
}

TEST(Autodiff, AnUnusedParameterHasNoGradientAndComesLast) {
  Mlp m;
  m.b.param({.name = "unused", .shape = Shape{3}, .init = {}});
  build(m, false);
  const Backward back = build_backward(m.b, m.loss);
  EXPECT_EQ(back.grads[0], kNone);
  EXPECT_EQ(back.ready_order.back(), 0);
}

TEST(Autodiff, AppendsOrdinaryNodesAfterForward) {
  Mlp m;
  build(m, false);
  const auto forward = m.b.graph().nodes().size();
  const Backward back = build_backward(m.b, m.loss);
  EXPECT_EQ(static_cast<std::size_t>(back.first_node), forward);
  EXPECT_GT(m.b.graph().nodes().size(), forward + 3);
}

}  // namespace
}  // namespace sidestep
