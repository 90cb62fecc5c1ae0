// relu and its gradient.
#include "core/base/host_device.h"
#include "core/ops/launch.h"
#include "core/ops/op_check.h"
#include "core/ops/ops.h"

namespace sidestep::ops {
namespace {

struct Relu {
  const float* x;
  float* y;
  /// Written so that NaN passes: a broken step must show in the loss.
  SIDESTEP_HD void operator()(std::int64_t i) const { y[i] = x[i] < 0.0f ? 0.0f : x[i]; }
};

struct ReluGrad {
  const float* dy;
  const float* y;
  float* dx;
  SIDESTEP_HD void operator()(std::int64_t i) const { dx[i] = y[i] > 0.0f ? dy[i] : 0.0f; }
};

std::vector<TensorType> infer(const Attrs&, std::span<const TensorType> in) {
  expect_inputs("relu", in, 1, 1);
  expect(in[0].dtype == DType::f32, "relu", "x of float32", in[0]);
  return {in[0]};
}

std::vector<MaybeValue> grad(GraphBuilder& builder, NodeRef node, std::span<const MaybeValue> dout,
                             std::span<const bool> wanted) {
  if (!wanted[0] || !dout[0]) return {std::nullopt};
  // The output instead of the input: it is alive anyway, as the next op's input.
  return {builder.apply1(relu_grad, {*dout[0], node.out()[0]}, {}, grad_name(node))};
}

void run(OpContext& context) {
  const View& x = context.in[0];
  launch_map(context.stream, x.numel(), Relu{x.as<float>(), context.out[0].as<float>()});
}

std::vector<TensorType> infer_grad(const Attrs&, std::span<const TensorType> in) {
  expect_inputs("relu_grad", in, 2, 2);
  expect(in[0].dtype == DType::f32, "relu_grad", "dy of float32", in[0]);
  expect(in[0] == in[1], "relu_grad", "y like dy (" + to_string(in[0]) + ")", in[1]);
  return {in[0]};
}

void run_grad(OpContext& context) {
  const View& dx = context.out[0];
  launch_map(context.stream, dx.numel(),
             ReluGrad{context.in[0].as<float>(), context.in[1].as<float>(), dx.as<float>()});
}

}  // namespace

const OpDef relu = {"relu", infer, grad, nullptr, run};
const OpDef relu_grad = {"relu_grad", infer_grad, nullptr, nullptr, run_grad};

}  // namespace sidestep::ops
