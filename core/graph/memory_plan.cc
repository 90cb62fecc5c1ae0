#include "core/graph/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace sidestep {
namespace {

constexpr std::size_t kAlign = 64;

struct Lifetime {
  ValueId value;
  NodeId begin, end;  ///< first and last node that touches it, inclusive
  std::size_t bytes;
};

std::vector<Lifetime> lifetimes(const Graph& graph, std::span<const ValueId> keep,
                                std::span<const ValueId> external) {
  std::vector<NodeId> last(graph.values().size(), kNone);
  for (std::size_t id = 0; id < graph.nodes().size(); ++id) {
    for (const ValueId v : graph.nodes()[id].in)
      last[static_cast<std::size_t>(v)] = static_cast<NodeId>(id);
    for (const ValueId v : graph.nodes()[id].out)
      last[static_cast<std::size_t>(v)] = static_cast<NodeId>(id);
  }
  for (const ValueId v : keep)
    last[static_cast<std::size_t>(v)] = static_cast<NodeId>(graph.nodes().size());
  std::vector<Lifetime> result;
  for (std::size_t i = 0; i < graph.values().size(); ++i) {
    const Value& value = graph.values()[i];
    const auto id = static_cast<ValueId>(i);
    if (value.kind != ValueKind::computed || std::ranges::find(external, id) != external.end())
      continue;
    const std::size_t bytes =
        static_cast<std::size_t>(value.type.shape.numel()) * size_of(value.type.dtype);
    result.push_back(
        {id, value.producer, last[i], std::max((bytes + kAlign - 1) / kAlign * kAlign, kAlign)});
  }
  return result;
}

}  // namespace

MemoryPlan plan_memory(const Graph& graph, std::span<const ValueId> keep,
                       std::span<const ValueId> external) {
  MemoryPlan plan;
  plan.offset.assign(graph.values().size(), MemoryPlan::kUnplaced);
  std::vector<Lifetime> todo = lifetimes(graph, keep, external);
  std::ranges::stable_sort(todo, std::greater{}, &Lifetime::bytes);
  std::vector<Lifetime> placed;  // by offset
  const auto offset_of = [&](const Lifetime& l) {
    return plan.offset[static_cast<std::size_t>(l.value)];
  };
  for (const Lifetime& l : todo) {
    std::size_t offset = 0;
    for (const Lifetime& other : placed) {
      if (other.end < l.begin || other.begin > l.end) continue;  // never alive together
      if (offset + l.bytes <= offset_of(other)) break;           // fits in the gap before it
      offset = std::max(offset, offset_of(other) + other.bytes);
    }
    plan.offset[static_cast<std::size_t>(l.value)] = offset;
    plan.bytes = std::max(plan.bytes, offset + l.bytes);
    placed.insert(std::ranges::upper_bound(placed, offset, {}, offset_of), l);
  }
  return plan;
}

}  // namespace sidestep
