#include "core/graph/graph.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/ops/ops.h"

namespace sidestep {
namespace {

TEST(GraphBuilder, NamesNodesUniquely) {
  GraphBuilder b;
  const ValueId x = b.input("x", {Shape{2, 3}});
  b.apply1(ops::relu, {x}, {}, "act");
  b.apply1(ops::relu, {x}, {}, "act");
  b.apply1(ops::relu, {x});
  EXPECT_EQ(b.graph().node(0).name, "act");
  EXPECT_EQ(b.graph().node(1).name, "act.1");
  EXPECT_EQ(b.graph().node(2).name, "relu");
}

TEST(GraphBuilder, SameParameterNameIsOneTiedParameter) {
  GraphBuilder b;
  const ValueId first = b.param({.name = "w", .shape = Shape{4, 3}, .init = {}});
  EXPECT_EQ(b.param({.name = "w", .shape = Shape{4, 3}, .init = {}}), first);
  EXPECT_EQ(b.param_specs().size(), 1u);
  EXPECT_THROW(b.param({.name = "w", .shape = Shape{3, 4}, .init = {}}), Error);
}

TEST(GraphBuilder, OpsNameWhatTheyExpectAndGot) {
  GraphBuilder b;
  const ValueId x = b.input("x", {Shape{2, 3}});
  const ValueId w = b.param({.name = "w", .shape = Shape{5, 4}, .init = {}});
  try {
    b.apply1(ops::linear, {x, w});
    FAIL() << "a weight of the wrong width was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::settings);
    const std::string text = error.what();
    EXPECT_NE(text.find("linear"), std::string::npos) << text;
    EXPECT_NE(text.find("[5, 4]"), std::string::npos) << text;
  }
}

TEST(Attrs, ChecksNameAndType) {
  const Attrs attrs{{"stride", std::int64_t{2}}, {"rate", 0.5}, {"mode", std::string("same")}};
  EXPECT_EQ(attrs.integer("stride"), 2);
  EXPECT_EQ(attrs.real("rate"), 0.5);
  EXPECT_EQ(attrs.text("mode"), "same");
  EXPECT_THROW(attrs.integer("rate"), Error);
  EXPECT_THROW(attrs.integer("kernel"), Error);
}

TEST(Graph, FindsInputsByName) {
  GraphBuilder b;
  b.input("x", {Shape{1}});
  const ValueId y = b.input("y", {Shape{1}, DType::i32});
  EXPECT_EQ(b.graph().input("y"), y);
  EXPECT_THROW(b.graph().input("z"), Error);
}

}  // namespace
}  // namespace sidestep
