// constant: n equal float64 numbers, such as the seed of backward.
#include "core/base/host_device.h"
#include "core/ops/launch.h"
#include "core/ops/op_check.h"
#include "core/ops/ops.h"

namespace sidestep::ops {
namespace {

struct Fill {
  double value;
  double* y;
  SIDESTEP_HD void operator()(std::int64_t i) const { y[i] = value; }
};

std::vector<TensorType> infer(const Attrs& attrs, std::span<const TensorType> in) {
  expect_inputs("constant", in, 0, 0);
  const std::int64_t n = attrs.integer("n");
  expect(n > 0, "constant", "n > 0", n);
  return {{Shape{n}, DType::f64}};
}

void run(OpContext& context) {
  const View& y = context.out[0];
  launch_map(context.stream, y.numel(), Fill{context.attrs.real("value"), y.as<double>()});
}

}  // namespace

const OpDef constant = {"constant", infer, nullptr, nullptr, run};

}  // namespace sidestep::ops
