#include "tests/harness/op_harness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "tests/harness/tolerances.h"

namespace sidestep::testing {
namespace {

constexpr std::size_t kGuard = 64;
constexpr std::uint64_t kSeed = 20240229;
/// Elements of one input whose gradient is compared with differences.
constexpr std::int64_t kGradientSamples = 48;

using Bytes = std::vector<std::byte>;

template <class T>
void store(Bytes& bytes, const Tensor64& tensor) {
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    const T value = static_cast<T>(tensor.values[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
}

template <class T>
void load(Tensor64& tensor, const Bytes& bytes) {
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    tensor.values[i] = static_cast<double>(value);
  }
}

std::size_t count(const TensorType& type) { return static_cast<std::size_t>(type.shape.numel()); }

Bytes to_bytes(const Tensor64& tensor) {
  Bytes bytes(count(tensor.type) * size_of(tensor.type.dtype));
  switch (tensor.type.dtype) {
    case DType::f32:
      store<float>(bytes, tensor);
      break;
    case DType::f64:
      store<double>(bytes, tensor);
      break;
    case DType::i32:
      store<std::int32_t>(bytes, tensor);
      break;
    case DType::i64:
      store<std::int64_t>(bytes, tensor);
      break;
    case DType::u8:
      store<std::uint8_t>(bytes, tensor);
      break;
  }
  return bytes;
}

Tensor64 from_bytes(const TensorType& type, const Bytes& bytes) {
  Tensor64 tensor{type, std::vector<double>(count(type))};
  switch (type.dtype) {
    case DType::f32:
      load<float>(tensor, bytes);
      break;
    case DType::f64:
      load<double>(tensor, bytes);
      break;
    case DType::i32:
      load<std::int32_t>(tensor, bytes);
      break;
    case DType::i64:
      load<std::int64_t>(tensor, bytes);
      break;
    case DType::u8:
      load<std::uint8_t>(tensor, bytes);
      break;
  }
  return tensor;
}

/// Values as the op will see them: rounded to the tensor's own type.
Tensor64 fill_input(const OpInput& input, std::string_view name, std::uint64_t index) {
  const std::uint64_t key = rng_key(kSeed, name, index);
  Tensor64 tensor{input.type, std::vector<double>(count(input.type))};
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    const double draw = static_cast<double>(random_normal(key, i));
    if (input.fill == OpInput::Fill::normal) tensor.values[i] = draw;
    if (input.fill == OpInput::Fill::coarse) tensor.values[i] = std::round(2 * draw) / 2;
    if (input.fill == OpInput::Fill::labels) {
      tensor.values[i] =
          static_cast<double>(random_below(key, i, static_cast<std::uint64_t>(input.below)));
    }
  }
  return from_bytes(input.type, to_bytes(tensor));
}

/// Device memory of one value between guard bytes, with copies to and from the host.
class GuardedValue {
 public:
  GuardedValue(const TensorType& type, Device device)
      : type_(type),
        bytes_(count(type) * size_of(type.dtype)),
        device_(device, bytes_ + 2 * kGuard),
        host_(Device{}, bytes_ + 2 * kGuard) {}

  View view() const { return device_.view(kGuard, type_.shape, type_.dtype); }

  /// Sets the value and fresh guards.
  void set(Stream& stream, const Bytes& value, std::byte guard) {
    guard_ = guard;
    std::fill_n(host_.data(), host_.size(), guard);
    std::copy(value.begin(), value.end(), host_.data() + kGuard);
    copy(stream, all(device_), all(host_));
  }
  /// Makes every byte, the value's too, a guard byte.
  void poison(Stream& stream, std::byte guard) { set(stream, Bytes(bytes_, guard), guard); }

  Bytes get(Stream& stream) {
    copy(stream, all(host_), all(device_));
    stream.synchronize();
    return {host_.data() + kGuard, host_.data() + kGuard + bytes_};
  }
  /// After get(): the bytes around the value are as they were.
  bool guards_intact() const {
    const auto intact = [&](std::byte b) { return b == guard_; };
    return std::all_of(host_.data(), host_.data() + kGuard, intact) &&
           std::all_of(host_.data() + kGuard + bytes_, host_.data() + host_.size(), intact);
  }

 private:
  static View all(const Buffer& buffer) {
    return buffer.view(0, Shape{static_cast<std::int64_t>(buffer.size())}, DType::u8);
  }
  TensorType type_;
  std::size_t bytes_;
  Buffer device_;
  Buffer host_;
  std::byte guard_{};
};

/// One op with its gradient as a small graph on a device.
class Rig {
 public:
  Rig(const OpCase& test, Device device) : test_(test), stream_(Stream::create(device, "op_test")) {
    for (std::size_t i = 0; i < test.in.size(); ++i) {
      inputs_.push_back(fill_input(test.in[i], test.name, i));
      in_ids_.push_back(builder_.input(fmt::format("in{}", i), test.in[i].type));
    }
    out_ids_ = builder_.apply(*test.op, in_ids_, test.attrs);
    if (test.op->grad != nullptr) build_gradient();
    allocate(device);
  }

  void check(OpReport& report);

 private:
  void build_gradient();
  void allocate(Device device);
  void run_all(std::byte poison);
  void check_types(OpReport& report, const std::vector<Tensor64>& wanted) const;
  void check_repeat(OpReport& report);
  void check_values(OpReport& report, const std::vector<Tensor64>& wanted) const;
  void check_gradient(OpReport& report, std::size_t input) const;
  double weighted_reference(std::vector<Tensor64>& in) const;
  Tensor64 result(ValueId id) const {
    return from_bytes(builder_.type(id), results_[static_cast<std::size_t>(id)]);
  }
  void problem(OpReport& report, const std::string& text) const {
    report.problems.push_back(fmt::format("[{}] {}", test_.name, text));
  }

  const OpCase& test_;
  Stream stream_;
  GraphBuilder builder_;
  std::vector<Tensor64> inputs_;  // in the order of input values; dy is last
  std::vector<ValueId> in_ids_;   // the op's own inputs
  std::vector<ValueId> out_ids_;
  std::vector<MaybeValue> grads_;
  std::vector<GuardedValue> values_;
  std::vector<std::unique_ptr<OpState>> states_;
  std::vector<Bytes> results_;
};

void Rig::build_gradient() {
  const TensorType dy_type = builder_.type(out_ids_[0]);
  inputs_.push_back(fill_input({dy_type}, test_.name + ".dy", 0));
  const ValueId dy = builder_.input("dy", dy_type);
  std::vector<MaybeValue> dout(out_ids_.size());
  dout[0] = dy;
  const std::size_t n = test_.in.size();
  const auto wanted = std::make_unique<bool[]>(n);
  for (std::size_t i = 0; i < n; ++i) wanted[i] = test_.in[i].type.dtype == DType::f32;
  grads_ = test_.op->grad(builder_, NodeRef{builder_.graph(), 0}, dout, {wanted.get(), n});
}

void Rig::allocate(Device device) {
  const Graph& graph = builder_.graph();
  for (const Value& value : graph.values()) values_.emplace_back(value.type, device);
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    states_.push_back(node.op->prepare == nullptr
                          ? nullptr
                          : node.op->prepare(NodeRef{graph, static_cast<NodeId>(i)}, device));
  }
}

void Rig::run_all(std::byte poison) {
  const Graph& graph = builder_.graph();
  std::size_t next_input = 0;
  for (std::size_t id = 0; id < values_.size(); ++id) {
    if (graph.values()[id].kind == ValueKind::input) {
      values_[id].set(stream_, to_bytes(inputs_[next_input++]), poison);
    } else {
      values_[id].poison(stream_, poison);
    }
  }
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    std::vector<View> in, out;
    for (const ValueId id : node.in) in.push_back(values_[static_cast<std::size_t>(id)].view());
    for (const ValueId id : node.out) out.push_back(values_[static_cast<std::size_t>(id)].view());
    OpContext context{stream_, in, out, node.attrs, states_[i].get()};
    node.op->run(context);
    stream_.synchronize();
  }
  results_.clear();
  for (GuardedValue& value : values_) results_.push_back(value.get(stream_));
}

void Rig::check(OpReport& report) {
  for (const Node& node : builder_.graph().nodes()) report.ops_run.emplace(node.op->name);
  const std::vector<Tensor64> wanted =
      test_.reference(test_.attrs, std::span(inputs_).first(test_.in.size()));
  check_types(report, wanted);
  if (!report.problems.empty()) return;
  check_repeat(report);
  check_values(report, wanted);
  for (std::size_t i = 0; i < grads_.size(); ++i) {
    if (grads_[i]) {
      check_gradient(report, i);
    } else if (test_.in[i].type.dtype == DType::f32) {
      problem(report, fmt::format("gradient: expected one of input {}, got none", i));
    }
  }
}

void Rig::check_types(OpReport& report, const std::vector<Tensor64>& wanted) const {
  if (wanted.size() != out_ids_.size()) {
    problem(report,
            fmt::format("type: expected {} outputs, got {}", wanted.size(), out_ids_.size()));
    return;
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const TensorType& got = builder_.type(out_ids_[i]);
    if (got == wanted[i].type) continue;
    problem(report, fmt::format("type: expected output {} to be {}, got {}", i,
                                to_string(wanted[i].type), to_string(got)));
  }
}

/// Two runs over different background bytes: what is not written, or not always equal, shows.
void Rig::check_repeat(OpReport& report) {
  run_all(std::byte{0x5a});
  const std::vector<Bytes> first = results_;
  run_all(std::byte{0xa5});
  const Graph& graph = builder_.graph();
  std::size_t next_input = 0;
  for (std::size_t id = 0; id < values_.size(); ++id) {
    const Value& value = graph.values()[id];
    if (!values_[id].guards_intact()) {
      problem(report, fmt::format("guard: bytes around {} were written", value.name));
    }
    if (value.kind == ValueKind::input) {
      if (results_[id] != to_bytes(inputs_[next_input++])) {
        problem(report, fmt::format("input: {} was changed", value.name));
      }
    } else if (results_[id] != first[id]) {
      problem(report, fmt::format("repeat: {} differs between two runs", value.name));
    }
  }
}

void Rig::check_values(OpReport& report, const std::vector<Tensor64>& wanted) const {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Tensor64 got = result(out_ids_[i]);
    double largest = 1;
    for (const double v : wanted[i].values) largest = std::max(largest, std::abs(v));
    const bool real = got.type.dtype == DType::f32 || got.type.dtype == DType::f64;
    const double bound = real ? kForwardTolerance * largest : 0;
    report.comparisons += static_cast<std::int64_t>(got.values.size());
    for (std::size_t j = 0; j < got.values.size(); ++j) {
      if (std::abs(got.values[j] - wanted[i].values[j]) <= bound) continue;
      problem(report, fmt::format("value: expected output {} element {} to be {}, got {}", i, j,
                                  wanted[i].values[j], got.values[j]));
      break;
    }
  }
}

/// sum of dy * first output.
double Rig::weighted_reference(std::vector<Tensor64>& in) const {
  const std::vector<Tensor64> out = test_.reference(test_.attrs, in);
  double sum = 0;
  for (std::size_t j = 0; j < out[0].values.size(); ++j) {
    sum += inputs_.back().values[j] * out[0].values[j];
  }
  return sum;
}

void Rig::check_gradient(OpReport& report, std::size_t input) const {
  const Tensor64 got = result(*grads_[input]);
  if (got.type != test_.in[input].type) {
    problem(report, fmt::format("gradient: expected {}, got {}", to_string(test_.in[input].type),
                                to_string(got.type)));
    return;
  }
  double largest = 1;
  for (const double v : got.values) largest = std::max(largest, std::abs(v));
  const double bound = kGradientTolerance * largest;
  std::vector<Tensor64> in(inputs_.begin(), inputs_.begin() + static_cast<long>(test_.in.size()));
  const double at = weighted_reference(in);
  const std::int64_t n = got.type.shape.numel();
  const std::int64_t stride = std::max<std::int64_t>(1, n / kGradientSamples);
  for (std::int64_t j = 0; j < n; j += stride) {
    const double x = in[input][j];
    in[input][j] = x + kDifferenceStep;
    const double right = (weighted_reference(in) - at) / kDifferenceStep;
    in[input][j] = x - kDifferenceStep;
    const double left = (at - weighted_reference(in)) / kDifferenceStep;
    in[input][j] = x;
    const bool kink = std::abs(right - left) > kKinkSlope;
    const double low = kink ? std::min(left, right) : (left + right) / 2;
    const double high = kink ? std::max(left, right) : low;
    ++report.comparisons;
    if (got[j] >= low - bound && got[j] <= high + bound) continue;
    problem(report,
            fmt::format("gradient: expected that of input {} element {} in [{}, {}], got {}", input,
                        j, low, high, got[j]));
    return;
  }
}

/// An op without a CUDA form must say so when it is prepared, not fail when it runs.
OpReport check_refusal(const OpCase& test, Device device) {
  OpReport report;
  try {
    const Rig rig(test, device);
    report.problems.push_back(
        fmt::format("[{}] refusal: expected prepare to fail on {}", test.name, to_string(device)));
  } catch (const Error& error) {
    ++report.comparisons;
    if (error.code() != Exit::device) {
      report.problems.push_back(fmt::format("[{}] refusal: {}", test.name, error.what()));
    }
  }
  return report;
}

}  // namespace

OpInput normal(Shape shape) { return {{shape, DType::f32}}; }
OpInput coarse(Shape shape) { return {{shape, DType::f32}, OpInput::Fill::coarse}; }
OpInput labels(std::int64_t n, std::int64_t below) {
  return {{Shape{n}, DType::i32}, OpInput::Fill::labels, below};
}

OpReport check_op(const OpCase& test, Device device) {
  if (device.kind == DeviceKind::cuda && !test.has_cuda) return check_refusal(test, device);
  OpReport report;
  Rig rig(test, device);
  rig.check(report);
  if (report.comparisons == 0 && report.problems.empty()) {
    report.problems.push_back(fmt::format("[{}] nothing: no comparison was made", test.name));
  }
  return report;
}

}  // namespace sidestep::testing
