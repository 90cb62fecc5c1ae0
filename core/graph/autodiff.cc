#include "core/graph/autodiff.h"

#include <algorithm>
#include <memory>

#include "core/base/error.h"
#include "core/ops/ops.h"

namespace sidestep {
namespace {

/// By ValueId: whether the value depends on a parameter.
std::vector<char> depends_on_params(const Graph& graph) {
  std::vector<char> depends(graph.values().size(), 0);
  for (const ValueId p : graph.params()) depends[static_cast<std::size_t>(p)] = 1;
  for (const Node& node : graph.nodes()) {
    const bool any = std::ranges::any_of(
        node.in, [&](ValueId v) { return depends[static_cast<std::size_t>(v)] != 0; });
    for (const ValueId v : node.out) depends[static_cast<std::size_t>(v)] = any;
  }
  return depends;
}

/// Appends the gradient nodes of one forward node and adds their results to `grads` (by ValueId).
void differentiate(GraphBuilder& builder, NodeId id, const std::vector<char>& depends,
                   std::vector<MaybeValue>& grads) {
  const Node node = builder.graph().node(id);  // a copy: appending moves the graph's vectors
  std::vector<MaybeValue> dout;
  for (const ValueId v : node.out) dout.push_back(grads[static_cast<std::size_t>(v)]);
  if (std::ranges::none_of(dout, [](const MaybeValue& d) { return d.has_value(); })) return;
  const auto wanted = std::make_unique<bool[]>(node.in.size());
  bool any = false;
  for (std::size_t i = 0; i < node.in.size(); ++i) {
    wanted[i] = depends[static_cast<std::size_t>(node.in[i])] != 0;
    any = any || wanted[i];
  }
  if (!any) return;
  check(node.op->grad != nullptr, "no gradient for the op of node " + node.name);
  const auto din = node.op->grad(builder, NodeRef{builder.graph(), id}, dout,
                                 std::span<const bool>(wanted.get(), node.in.size()));
  check(din.size() == node.in.size(), "grad of " + node.name + " returned another count");
  for (std::size_t i = 0; i < din.size(); ++i) {
    if (!wanted[i] || !din[i]) continue;
    MaybeValue& total = grads[static_cast<std::size_t>(node.in[i])];
    total = total ? builder.apply1(ops::add, {*total, *din[i]}) : *din[i];
  }
}

}  // namespace

Backward build_backward(GraphBuilder& builder, ValueId loss) {
  const std::vector<char> depends = depends_on_params(builder.graph());
  std::vector<MaybeValue> grads(builder.graph().values().size());
  Backward result;
  result.first_node = static_cast<NodeId>(builder.graph().nodes().size());
  const std::int64_t n = builder.type(loss).shape.numel();
  grads[static_cast<std::size_t>(loss)] =
      builder.apply1(ops::constant, {}, {{"value", 1.0}, {"n", n}}, "d.loss");
  for (NodeId id = result.first_node - 1; id >= 0; --id)
    differentiate(builder, id, depends, grads);

  const Graph& graph = builder.graph();
  const std::size_t count = graph.params().size();
  result.grads.assign(count, kNone);
  result.final_after.assign(count, kNone);
  result.last_reader.assign(count, kNone);
  for (std::size_t p = 0; p < count; ++p) {
    const MaybeValue grad = grads[static_cast<std::size_t>(graph.params()[p])];
    result.ready_order.push_back(static_cast<ParamId>(p));
    if (!grad) continue;
    check(std::ranges::find(result.grads, *grad) == result.grads.end(),
          "two parameters share one gradient value");
    result.grads[p] = *grad;
    result.final_after[p] = graph.value(*grad).producer;
  }
  for (std::size_t id = 0; id < graph.nodes().size(); ++id)
    for (const ValueId v : graph.nodes()[id].in)
      if (graph.value(v).kind == ValueKind::param)
        result.last_reader[static_cast<std::size_t>(graph.value(v).param)] =
            static_cast<NodeId>(id);
  const auto when = [&](ParamId p) {
    const NodeId node = result.final_after[static_cast<std::size_t>(p)];
    return node == kNone ? static_cast<NodeId>(graph.nodes().size()) : node;
  };
  std::ranges::stable_sort(result.ready_order, {}, when);
  return result;
}

}  // namespace sidestep
