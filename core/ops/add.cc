// add: the sum of two values of one type; autodiff appends it where a value has two readers.
#include "core/base/host_device.h"
#include "core/ops/launch.h"
#include "core/ops/op_check.h"
#include "core/ops/ops.h"

namespace sidestep::ops {
namespace {

template <class T>
struct Add {
  const T* a;
  const T* b;
  T* y;
  SIDESTEP_HD void operator()(std::int64_t i) const { y[i] = a[i] + b[i]; }
};

std::vector<TensorType> infer(const Attrs&, std::span<const TensorType> in) {
  expect_inputs("add", in, 2, 2);
  expect(in[0].dtype == DType::f32 || in[0].dtype == DType::f64, "add", "float32 or float64",
         in[0]);
  expect(in[0] == in[1], "add", "a second input like the first (" + to_string(in[0]) + ")", in[1]);
  return {in[0]};
}

std::vector<MaybeValue> grad(GraphBuilder&, NodeRef, std::span<const MaybeValue> dout,
                             std::span<const bool>) {
  return {dout[0], dout[0]};
}

template <class T>
void launch_add(OpContext& context) {
  const View& y = context.out[0];
  launch_map(context.stream, y.numel(),
             Add<T>{context.in[0].as<T>(), context.in[1].as<T>(), y.as<T>()});
}

void run(OpContext& context) {
  if (context.out[0].dtype == DType::f64) return launch_add<double>(context);
  launch_add<float>(context);
}

}  // namespace

const OpDef add = {"add", infer, grad, nullptr, run};

}  // namespace sidestep::ops
