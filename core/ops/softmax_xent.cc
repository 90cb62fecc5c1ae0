// softmax_xent: softmax, cross-entropy, and the count of correct predictions, fused.
#include <cmath>
#include <limits>
#include <memory>

#include "core/base/host_device.h"
#include "core/ops/launch.h"
#include "core/ops/op_check.h"
#include "core/ops/ops.h"

namespace sidestep::ops {
namespace {

/// Per-row results before they are added in row order.
struct State final : OpState {
  State(Device device, std::int64_t rows)
      : buffer(device, static_cast<std::size_t>(rows) * (sizeof(double) + sizeof(std::int32_t))),
        loss(reinterpret_cast<double*>(buffer.data())),
        correct(reinterpret_cast<std::int32_t*>(buffer.data() +
                                                static_cast<std::size_t>(rows) * sizeof(double))) {}
  Buffer buffer;
  double* loss;
  std::int32_t* correct;
};

struct Forward {
  const float* logits;
  const std::int32_t* labels;
  float* probabilities;
  double* row_loss;
  std::int32_t* row_correct;
  std::int64_t classes;

  /// Subtracts the row's maximum first, so that nothing overflows. A label outside the classes
  /// makes the loss NaN instead of reading outside the row.
  SIDESTEP_HD void operator()(std::int64_t row) const {
    const float* x = logits + row * classes;
    float* p = probabilities + row * classes;
    std::int64_t best = 0;
    for (std::int64_t j = 1; j < classes; ++j) {
      if (x[j] > x[best]) best = j;
    }
    const float highest = x[best];
    double sum = 0;
    for (std::int64_t j = 0; j < classes; ++j) {
      p[j] = std::exp(x[j] - highest);
      sum += static_cast<double>(p[j]);
    }
    const float scale = static_cast<float>(1.0 / sum);
    for (std::int64_t j = 0; j < classes; ++j) p[j] *= scale;
    const std::int64_t label = labels[row];
    const bool valid = label >= 0 && label < classes;
    row_loss[row] = valid ? std::log(sum) - (static_cast<double>(x[label]) - highest)
                          : std::numeric_limits<double>::quiet_NaN();
    row_correct[row] = best == label && x[best] == x[best] ? 1 : 0;
  }
};

/// One call in all: adds the rows in order.
struct Totals {
  const double* row_loss;
  const std::int32_t* row_correct;
  double* loss;
  std::int64_t* weight;
  std::int64_t* correct;
  std::int64_t rows;

  SIDESTEP_HD void operator()(std::int64_t) const {
    double loss_sum = 0;
    std::int64_t correct_sum = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      loss_sum += row_loss[row];
      correct_sum += row_correct[row];
    }
    *loss = loss_sum;
    *weight = rows;
    *correct = correct_sum;
  }
};

struct Backward {
  const double* dloss;
  const float* probabilities;
  const std::int32_t* labels;
  float* dlogits;
  std::int64_t classes;

  SIDESTEP_HD void operator()(std::int64_t row) const {
    const float scale = static_cast<float>(*dloss);
    const float* p = probabilities + row * classes;
    float* dx = dlogits + row * classes;
    const std::int64_t label = labels[row];
    for (std::int64_t j = 0; j < classes; ++j) dx[j] = (p[j] - (j == label ? 1.0f : 0.0f)) * scale;
  }
};

void expect_rows(std::string_view op, const TensorType& logits, const TensorType& labels) {
  const bool ok = logits.dtype == DType::f32 && logits.shape.rank() == 2 && logits.shape[1] > 0;
  expect(ok, op, "float32 [rows, classes]", logits);
  const TensorType wanted{Shape{logits.shape[0]}, DType::i32};
  expect(labels == wanted, op, "labels " + to_string(wanted), labels);
}

std::vector<TensorType> infer(const Attrs&, std::span<const TensorType> in) {
  expect_inputs("softmax_xent", in, 2, 2);
  expect_rows("softmax_xent", in[0], in[1]);
  const Shape one{1};
  return {{one, DType::f64}, {one, DType::i64}, {one, DType::i64}, in[0]};
}

std::vector<MaybeValue> grad(GraphBuilder& builder, NodeRef node, std::span<const MaybeValue> dout,
                             std::span<const bool> wanted) {
  std::vector<MaybeValue> dx(2);
  if (wanted[0] && dout[0]) {
    dx[0] = builder.apply1(softmax_xent_grad, {*dout[0], node.out()[3], node.in()[1]}, {},
                           grad_name(node));
  }
  return dx;
}

std::unique_ptr<OpState> prepare(NodeRef node, Device device) {
  return std::make_unique<State>(device, node.in_type(0).shape[0]);
}

void run(OpContext& context) {
  const View& logits = context.in[0];
  auto& state = static_cast<State&>(*context.state);
  const std::int64_t rows = logits.shape[0];
  launch_rows(context.stream, rows,
              Forward{logits.as<float>(), context.in[1].as<std::int32_t>(),
                      context.out[3].as<float>(), state.loss, state.correct, logits.shape[1]});
  launch_rows(context.stream, 1,
              Totals{state.loss, state.correct, context.out[0].as<double>(),
                     context.out[1].as<std::int64_t>(), context.out[2].as<std::int64_t>(), rows});
}

std::vector<TensorType> infer_grad(const Attrs&, std::span<const TensorType> in) {
  expect_inputs("softmax_xent_grad", in, 3, 3);
  const bool ok = in[0] == TensorType{Shape{1}, DType::f64};
  expect(ok, "softmax_xent_grad", "dloss float64 [1]", in[0]);
  expect_rows("softmax_xent_grad", in[1], in[2]);
  return {in[1]};
}

void run_grad(OpContext& context) {
  const View& p = context.in[1];
  launch_rows(context.stream, p.shape[0],
              Backward{context.in[0].as<double>(), p.as<float>(), context.in[2].as<std::int32_t>(),
                       context.out[0].as<float>(), p.shape[1]});
}

}  // namespace

const OpDef softmax_xent = {"softmax_xent", infer, grad, prepare, run};
const OpDef softmax_xent_grad = {"softmax_xent_grad", infer_grad, nullptr, nullptr, run_grad};

}  // namespace sidestep::ops
