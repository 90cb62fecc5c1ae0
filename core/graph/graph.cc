#include "core/graph/graph.h"

#include "core/base/error.h"

namespace sidestep {

std::string to_string(const TensorType& type) {
  return std::string(to_string(type.dtype)) + " " + to_string(type.shape);
}

const Attrs::Item& Attrs::at(std::string_view name) const {
  const auto found = items_.find(name);
  // the text is made only on failure: run functions read attributes inside a step
  if (found == items_.end()) check(false, "a node lacks the attribute " + std::string(name));
  return found->second;
}

std::int64_t Attrs::integer(std::string_view name) const {
  const auto* value = std::get_if<std::int64_t>(&at(name));
  if (value == nullptr) check(false, "attribute is not an integer: " + std::string(name));
  return *value;
}

double Attrs::real(std::string_view name) const {
  const auto* value = std::get_if<double>(&at(name));
  if (value == nullptr) check(false, "attribute is not a real number: " + std::string(name));
  return *value;
}

const std::string& Attrs::text(std::string_view name) const {
  const auto* value = std::get_if<std::string>(&at(name));
  if (value == nullptr) check(false, "attribute is not a text: " + std::string(name));
  return *value;
}

std::string_view NodeRef::name() const { return graph.node(id).name; }
const Attrs& NodeRef::attrs() const { return graph.node(id).attrs; }
std::span<const ValueId> NodeRef::in() const { return graph.node(id).in; }
std::span<const ValueId> NodeRef::out() const { return graph.node(id).out; }
const TensorType& NodeRef::in_type(int i) const {
  return graph.value(graph.node(id).in[static_cast<std::size_t>(i)]).type;
}
const TensorType& NodeRef::out_type(int i) const {
  return graph.value(graph.node(id).out[static_cast<std::size_t>(i)]).type;
}

ValueId Graph::input(std::string_view name) const {
  for (std::size_t i = 0; i < values_.size(); ++i)
    if (values_[i].kind == ValueKind::input && values_[i].name == name)
      return static_cast<ValueId>(i);
  check(false, "the graph has no input named " + std::string(name));
  return kNone;
}

ValueId GraphBuilder::input(std::string name, TensorType type) {
  graph_.values_.push_back({.name = std::move(name), .type = type, .kind = ValueKind::input});
  return static_cast<ValueId>(graph_.values_.size() - 1);
}

ValueId GraphBuilder::param(const ParamSpec& spec) {
  for (std::size_t p = 0; p < specs_.size(); ++p) {
    if (specs_[p].name != spec.name) continue;
    check(specs_[p].shape == spec.shape, "tied parameter with another shape: " + spec.name);
    return graph_.params_[p];
  }
  graph_.values_.push_back({.name = spec.name,
                            .type = {spec.shape, DType::f32},
                            .kind = ValueKind::param,
                            .param = static_cast<ParamId>(specs_.size())});
  specs_.push_back(spec);
  graph_.params_.push_back(static_cast<ValueId>(graph_.values_.size() - 1));
  return graph_.params_.back();
}

std::string GraphBuilder::unique_name(std::string wanted) {
  const int taken = names_[wanted]++;
  return taken == 0 ? wanted : wanted + "." + std::to_string(taken);
}

std::vector<ValueId> GraphBuilder::apply(const OpDef& op, std::span<const ValueId> in, Attrs attrs,
                                         std::string name) {
  std::vector<TensorType> types;
  for (const ValueId id : in) types.push_back(type(id));
  const std::vector<TensorType> out_types = op.infer(attrs, types);
  Node node{.op = &op,
            .name = unique_name(name.empty() ? std::string(op.name) : std::move(name)),
            .attrs = std::move(attrs),
            .in = {in.begin(), in.end()},
            .out = {}};
  const auto id = static_cast<NodeId>(graph_.nodes_.size());
  for (std::size_t i = 0; i < out_types.size(); ++i) {
    graph_.values_.push_back({.name = node.name + (i == 0 ? "" : ":" + std::to_string(i)),
                              .type = out_types[i],
                              .producer = id});
    node.out.push_back(static_cast<ValueId>(graph_.values_.size() - 1));
  }
  graph_.nodes_.push_back(std::move(node));
  return graph_.nodes_.back().out;
}

ValueId GraphBuilder::apply1(const OpDef& op, std::initializer_list<ValueId> in, Attrs attrs,
                             std::string name) {
  const auto out = apply(op, std::span<const ValueId>(in.begin(), in.size()), std::move(attrs),
                         std::move(name));
  check(out.size() == 1, "apply1 on an op with several outputs");
  return out[0];
}

}  // namespace sidestep
