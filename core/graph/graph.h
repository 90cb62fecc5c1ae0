// The static graph: values, nodes, ops as plain structs, and the builder that appends to it.
// Built once per batch size before step 1, on the main thread; immutable afterwards.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/shape.h"
#include "core/device/buffer.h"
#include "core/device/stream.h"

namespace sidestep {

using ValueId = std::int32_t;
using NodeId = std::int32_t;
using ParamId = std::int32_t;
inline constexpr std::int32_t kNone = -1;
using MaybeValue = std::optional<ValueId>;

struct TensorType {
  Shape shape;
  DType dtype = DType::f32;
  bool operator==(const TensorType&) const = default;
};
/// "float32 [64, 10]"
std::string to_string(const TensorType& type);

/// Named constants of a node: kernel size, stride, ...
class Attrs {
 public:
  using Item = std::variant<std::int64_t, double, std::string>;
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<const std::string, Item>> items) : items_(items) {}
  std::int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  const std::string& text(std::string_view name) const;

 private:
  const Item& at(std::string_view name) const;
  std::map<std::string, Item, std::less<>> items_;
};

class Graph;
class GraphBuilder;

/// State an op prepares once per node (library primitives, scratch); destroyed with the executor.
struct OpState {
  virtual ~OpState() = default;
};

/// A node as its op sees it: types of inputs and outputs, attributes, ids.
struct NodeRef {
  const Graph& graph;
  NodeId id;
  std::string_view name() const;
  const Attrs& attrs() const;
  std::span<const ValueId> in() const;
  std::span<const ValueId> out() const;
  const TensorType& in_type(int i) const;
  const TensorType& out_type(int i) const;
};

/// What run() gets: it only enqueues on `stream`. Views stay valid for the executor's life; copy
/// them into tasks by value. `step` feeds counter-based randomness.
struct OpContext {
  Stream& stream;
  std::span<const View> in;
  std::span<const View> out;
  const Attrs& attrs;
  OpState* state;
};

/// All knowledge about one op, as plain functions.
struct OpDef {
  std::string_view name;
  /// Types of the outputs; fails (Exit::settings) with "[name] expected ..., got ..." on bad input.
  std::vector<TensorType> (*infer)(const Attrs& attrs, std::span<const TensorType> in);
  /// Appends nodes that compute the gradients of the inputs from those of the outputs; nullopt
  /// where there is none. Null for ops that are not differentiable.
  /// `wanted[i]` says whether the gradient of input i is needed; others may be left out.
  std::vector<MaybeValue> (*grad)(GraphBuilder& builder, NodeRef node,
                                  std::span<const MaybeValue> dout, std::span<const bool> wanted);
  /// May be null. Chooses library primitives, allocates scratch.
  std::unique_ptr<OpState> (*prepare)(NodeRef node, Device device);
  void (*run)(OpContext& context);
};

enum class ValueKind : std::uint8_t { input, param, computed };

struct Value {
  std::string name;
  TensorType type;
  ValueKind kind = ValueKind::computed;
  NodeId producer = kNone;
  ParamId param = kNone;
};

struct Node {
  const OpDef* op = nullptr;
  std::string name;  ///< unique, "conv1" or "d.conv1"; what traces show
  Attrs attrs;
  std::vector<ValueId> in;
  std::vector<ValueId> out;
};

class Graph {
 public:
  const std::vector<Value>& values() const { return values_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const Value& value(ValueId id) const { return values_[static_cast<std::size_t>(id)]; }
  const Node& node(NodeId id) const { return nodes_[static_cast<std::size_t>(id)]; }
  /// Value ids of the parameters, by ParamId.
  const std::vector<ValueId>& params() const { return params_; }
  /// Id of an input by name; internal error if there is none.
  ValueId input(std::string_view name) const;

 private:
  friend class GraphBuilder;
  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<ValueId> params_;
};

/// How a parameter starts.
struct Init {
  enum class Kind : std::uint8_t { zeros, ones, uniform, normal } kind = Kind::zeros;
  double scale = 0;  ///< uniform in [-scale, scale), or the standard deviation
};

/// What a model says about one parameter. The shape is the user's (PyTorch's), in memory too.
struct ParamSpec {
  std::string name;  ///< PyTorch's: "conv1.weight"
  Shape shape;
  Init init;
  bool decay = true;  ///< weight decay applies
};

class GraphBuilder {
 public:
  ValueId input(std::string name, TensorType type);
  /// The same name twice returns the same value (a tied parameter).
  ValueId param(const ParamSpec& spec);
  /// Appends a node and returns its outputs. `name` is made unique by a suffix if it is taken.
  std::vector<ValueId> apply(const OpDef& op, std::span<const ValueId> in, Attrs attrs = {},
                             std::string name = {});
  /// For ops with one output.
  ValueId apply1(const OpDef& op, std::initializer_list<ValueId> in, Attrs attrs = {},
                 std::string name = {});
  const TensorType& type(ValueId id) const { return graph_.value(id).type; }
  const Graph& graph() const { return graph_; }
  const std::vector<ParamSpec>& param_specs() const { return specs_; }
  Graph take() && { return std::move(graph_); }

 private:
  std::string unique_name(std::string wanted);
  Graph graph_;
  std::vector<ParamSpec> specs_;
  std::map<std::string, int, std::less<>> names_;
};

}  // namespace sidestep
