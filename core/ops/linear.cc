// linear: y = x W^T + b, and its gradients, by the CBLAS.
#include <algorithm>

#include "core/ops/blas.h"
#include "core/ops/op_check.h"
#include "core/ops/ops.h"

namespace sidestep::ops {
namespace {

using blas::Form;

bool is_matrix(const TensorType& type) {
  return type.dtype == DType::f32 && type.shape.rank() == 2;
}

std::vector<TensorType> infer(const Attrs&, std::span<const TensorType> in) {
  expect_inputs("linear", in, 2, 3);
  expect(is_matrix(in[0]), "linear", "x of rank 2 [rows, in]", in[0]);
  const Shape& x = in[0].shape;
  expect(is_matrix(in[1]) && in[1].shape[1] == x[1], "linear",
         "a weight float32 [out, " + std::to_string(x[1]) + "]", in[1]);
  const std::int64_t out = in[1].shape[0];
  if (in.size() == 3) {
    const TensorType wanted{Shape{out}, DType::f32};
    expect(in[2] == wanted, "linear", "a bias " + to_string(wanted), in[2]);
  }
  return {{Shape{x[0], out}, DType::f32}};
}

/// Weights first: their gradients can travel while dx is computed.
std::vector<MaybeValue> grad(GraphBuilder& builder, NodeRef node, std::span<const MaybeValue> dout,
                             std::span<const bool> wanted) {
  std::vector<MaybeValue> dx(node.in().size());
  if (!dout[0]) return dx;
  const ValueId dy = *dout[0];
  if (wanted[1]) {
    dx[1] = builder.apply1(linear_grad_w, {dy, node.in()[0]}, {}, grad_name(node, "weight"));
  }
  if (dx.size() == 3 && wanted[2]) {
    dx[2] = builder.apply1(bias_grad, {dy}, {}, grad_name(node, "bias"));
  }
  if (wanted[0]) dx[0] = builder.apply1(linear_grad_x, {dy, node.in()[1]}, {}, grad_name(node));
  return dx;
}

std::unique_ptr<OpState> prepare(NodeRef, Device device) {
  expect_cpu("linear", device);
  blas::take_working_memory();
  return nullptr;
}

/// The bias is laid into y first; the product is added to it.
void run(OpContext& context) {
  const Shape& w = context.in[1].shape;
  const std::int64_t rows = context.in[0].shape[0], out = w[0], in = w[1];
  const auto* x = context.in[0].as<float>();
  const auto* weight = context.in[1].as<float>();
  const float* bias = context.in.size() == 3 ? context.in[2].as<float>() : nullptr;
  auto* y = context.out[0].as<float>();
  context.stream.host([=] {
    for (std::int64_t row = 0; bias != nullptr && row < rows; ++row) {
      std::copy_n(bias, out, y + row * out);
    }
    blas::sgemm(Form::plain, Form::transposed, rows, out, in, x, weight, bias ? 1.0f : 0.0f, y);
  });
}

std::vector<TensorType> infer_grad_x(const Attrs&, std::span<const TensorType> in) {
  expect_inputs("linear_grad_x", in, 2, 2);
  expect(is_matrix(in[0]), "linear_grad_x", "dy of rank 2", in[0]);
  const bool ok = is_matrix(in[1]) && in[1].shape[0] == in[0].shape[1];
  expect(ok, "linear_grad_x", "a weight with a row for each column of dy", in[1]);
  return {{Shape{in[0].shape[0], in[1].shape[1]}, DType::f32}};
}

void run_grad_x(OpContext& context) {
  const Shape& w = context.in[1].shape;
  const std::int64_t rows = context.in[0].shape[0], out = w[0], in = w[1];
  const auto* dy = context.in[0].as<float>();
  const auto* weight = context.in[1].as<float>();
  auto* dx = context.out[0].as<float>();
  context.stream.host(
      [=] { blas::sgemm(Form::plain, Form::plain, rows, in, out, dy, weight, 0.0f, dx); });
}

std::vector<TensorType> infer_grad_w(const Attrs&, std::span<const TensorType> in) {
  expect_inputs("linear_grad_w", in, 2, 2);
  expect(is_matrix(in[0]), "linear_grad_w", "dy of rank 2", in[0]);
  const bool ok = is_matrix(in[1]) && in[1].shape[0] == in[0].shape[0];
  expect(ok, "linear_grad_w", "x with as many rows as dy", in[1]);
  return {{Shape{in[0].shape[1], in[1].shape[1]}, DType::f32}};
}

void run_grad_w(OpContext& context) {
  const std::int64_t rows = context.in[0].shape[0];
  const std::int64_t out = context.in[0].shape[1], in = context.in[1].shape[1];
  const auto* dy = context.in[0].as<float>();
  const auto* x = context.in[1].as<float>();
  auto* dw = context.out[0].as<float>();
  context.stream.host(
      [=] { blas::sgemm(Form::transposed, Form::plain, out, in, rows, dy, x, 0.0f, dw); });
}

}  // namespace

const OpDef linear = {"linear", infer, grad, prepare, run};
const OpDef linear_grad_x = {"linear_grad_x", infer_grad_x, nullptr, prepare, run_grad_x};
const OpDef linear_grad_w = {"linear_grad_w", infer_grad_w, nullptr, prepare, run_grad_w};

}  // namespace sidestep::ops
