#include "core/graph/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/ops/ops.h"

namespace sidestep {
namespace {

struct Life {
  NodeId begin, end;
};

std::vector<Life> lives(const Graph& graph, const std::vector<ValueId>& keep) {
  std::vector<Life> result;
  for (std::size_t v = 0; v < graph.values().size(); ++v) {
    Life life{graph.values()[v].producer, graph.values()[v].producer};
    for (std::size_t n = 0; n < graph.nodes().size(); ++n)
      if (std::ranges::count(graph.nodes()[n].in, static_cast<ValueId>(v)) > 0)
        life.end = static_cast<NodeId>(n);
    if (std::ranges::count(keep, static_cast<ValueId>(v)) > 0) life.end = 1 << 30;
    result.push_back(life);
  }
  return result;
}

// Random graphs of adds over values of random sizes: whatever lives together lies apart.
TEST(MemoryPlan, ValuesAliveTogetherNeverOverlap) {
  std::mt19937 random(7);
  std::size_t compared = 0;
  for (int round = 0; round < 50; ++round) {
    GraphBuilder b;
    std::vector<std::vector<ValueId>> by_size(3);
    const std::int64_t sizes[] = {3, 100, 1000};
    for (std::size_t s = 0; s < 3; ++s)
      by_size[s] = {b.input("in" + std::to_string(s), {Shape{sizes[s]}})};
    for (int n = 0; n < 30; ++n) {
      auto& group = by_size[random() % 3];
      group.push_back(
          b.apply1(ops::add, {group[random() % group.size()], group[random() % group.size()]}));
    }
    const std::vector<ValueId> keep = {by_size[1].back()};
    const Graph& graph = b.graph();
    const MemoryPlan plan = plan_memory(graph, keep, {});
    const auto life = lives(graph, keep);
    std::size_t total = 0;
    for (std::size_t i = 0; i < graph.values().size(); ++i) {
      if (graph.values()[i].kind != ValueKind::computed) {
        EXPECT_EQ(plan.offset[i], MemoryPlan::kUnplaced);
        continue;
      }
      const auto bytes_i = static_cast<std::size_t>(graph.values()[i].type.shape.numel()) * 4;
      total += bytes_i;
      EXPECT_EQ(plan.offset[i] % 64, 0u);
      EXPECT_LE(plan.offset[i] + bytes_i, plan.bytes);
      for (std::size_t j = 0; j < i; ++j) {
        if (graph.values()[j].kind != ValueKind::computed) continue;
        if (life[i].end < life[j].begin || life[j].end < life[i].begin) continue;
        const auto bytes_j = static_cast<std::size_t>(graph.values()[j].type.shape.numel()) * 4;
        EXPECT_TRUE(plan.offset[i] + bytes_i <= plan.offset[j] ||
                    plan.offset[j] + bytes_j <= plan.offset[i]);
        ++compared;
      }
    }
    EXPECT_GT(total, 0u);
  }
  EXPECT_GT(compared, 1000u);
}

TEST(MemoryPlan, AChainReusesMemory) {
  GraphBuilder b;
  ValueId v = b.input("x", {Shape{1024}});
  for (int i = 0; i < 20; ++i) v = b.apply1(ops::relu, {v});
  const std::vector<ValueId> keep = {v};
  EXPECT_EQ(plan_memory(b.graph(), keep, {}).bytes, 2u * 1024 * 4);
}

TEST(MemoryPlan, ExternalValuesTakeNoRoom) {
  GraphBuilder b;
  const ValueId v = b.apply1(ops::relu, {b.input("x", {Shape{1024}})});
  const std::vector<ValueId> external = {v};
  const MemoryPlan plan = plan_memory(b.graph(), {}, external);
  EXPECT_EQ(plan.bytes, 0u);
  EXPECT_EQ(plan.offset[static_cast<std::size_t>(v)], MemoryPlan::kUnplaced);
}

}  // namespace
}  // namespace sidestep
