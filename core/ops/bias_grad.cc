// bias_grad: sums over all rows, in float64 and in row order.
#include "core/base/host_device.h"
#include "core/ops/launch.h"
#include "core/ops/op_check.h"
#include "core/ops/ops.h"

namespace sidestep::ops {
namespace {

/// Columns that one call sums: enough to fill vector registers, and whole cache lines of each row.
constexpr std::int64_t kColumns = 16;

struct ColumnSums {
  const float* dy;
  float* db;
  std::int64_t rows;
  std::int64_t columns;

  SIDESTEP_HD void operator()(std::int64_t block) const {
    const std::int64_t first = block * kColumns;
    double sums[kColumns] = {};
    if (first + kColumns <= columns) {
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t j = 0; j < kColumns; ++j) sums[j] += dy[row * columns + first + j];
      }
    } else {
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t j = 0; j < columns - first; ++j) sums[j] += dy[row * columns + first + j];
      }
    }
    for (std::int64_t j = 0; j < kColumns && first + j < columns; ++j) {
      db[first + j] = static_cast<float>(sums[j]);
    }
  }
};

std::vector<TensorType> infer(const Attrs&, std::span<const TensorType> in) {
  expect_inputs("bias_grad", in, 1, 1);
  const bool ok = in[0].dtype == DType::f32 && in[0].shape.rank() >= 2;
  expect(ok, "bias_grad", "dy of float32 and rank 2 or more", in[0]);
  return {{Shape{in[0].shape[in[0].shape.rank() - 1]}, DType::f32}};
}

void run(OpContext& context) {
  const View& dy = context.in[0];
  const View& db = context.out[0];
  const std::int64_t columns = db.numel();
  const ColumnSums body{dy.as<float>(), db.as<float>(), dy.numel() / columns, columns};
  launch_rows(context.stream, (columns + kColumns - 1) / kColumns, body);
}

}  // namespace

const OpDef bias_grad = {"bias_grad", infer, nullptr, nullptr, run};

}  // namespace sidestep::ops
