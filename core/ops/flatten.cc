// flatten: images to vectors in CHW order (PyTorch's, so that weights can be exchanged), and back.
#include "core/base/host_device.h"
#include "core/ops/launch.h"
#include "core/ops/op_check.h"
#include "core/ops/ops.h"

namespace sidestep::ops {
namespace {

/// One call a (sample, channel): copies a plane between pixels [hw, c] and planes [c, hw].
template <bool kToPlanes>
struct MovePlane {
  const float* from;
  float* to;
  std::int64_t channels;
  std::int64_t pixels;

  SIDESTEP_HD void operator()(std::int64_t row) const {
    const std::int64_t sample = row / channels;
    const std::int64_t channel = row - sample * channels;
    const std::int64_t plane = row * pixels;
    const std::int64_t image = sample * pixels * channels + channel;
    for (std::int64_t p = 0; p < pixels; ++p) {
      if constexpr (kToPlanes) to[plane + p] = from[image + p * channels];
      if constexpr (!kToPlanes) to[image + p * channels] = from[plane + p];
    }
  }
};

std::vector<TensorType> infer(const Attrs&, std::span<const TensorType> in) {
  expect_inputs("flatten", in, 1, 1);
  const int rank = in[0].shape.rank();
  const bool ok = in[0].dtype == DType::f32 && (rank == 2 || rank == 4);
  expect(ok, "flatten", "x of float32 and rank 4 (NHWC) or 2", in[0]);
  return {{Shape{in[0].shape[0], in[0].shape.row_numel()}, DType::f32}};
}

std::vector<MaybeValue> grad(GraphBuilder& builder, NodeRef node, std::span<const MaybeValue> dout,
                             std::span<const bool> wanted) {
  if (!wanted[0] || !dout[0]) return {std::nullopt};
  const Shape& x = node.in_type(0).shape;
  if (x.rank() == 2) return {dout[0]};
  return {builder.apply1(flatten_grad, {*dout[0]}, {{"height", x[1]}, {"width", x[2]}},
                         grad_name(node))};
}

/// Rank 2 is the case of one pixel.
void run(OpContext& context) {
  const View& x = context.in[0];
  const bool image = x.shape.rank() == 4;
  const std::int64_t channels = x.shape[image ? 3 : 1];
  const std::int64_t pixels = image ? x.shape[1] * x.shape[2] : 1;
  launch_rows(context.stream, x.shape[0] * channels,
              MovePlane<true>{x.as<float>(), context.out[0].as<float>(), channels, pixels});
}

std::vector<TensorType> infer_grad(const Attrs& attrs, std::span<const TensorType> in) {
  expect_inputs("flatten_grad", in, 1, 1);
  const std::int64_t height = attrs.integer("height");
  const std::int64_t width = attrs.integer("width");
  const Shape& dy = in[0].shape;
  const bool ok = in[0].dtype == DType::f32 && dy.rank() == 2 && dy[1] % (height * width) == 0;
  expect(ok, "flatten_grad", "dy of float32 [n, channels * height * width]", in[0]);
  return {{Shape{dy[0], height, width, dy[1] / (height * width)}, DType::f32}};
}

void run_grad(OpContext& context) {
  const View& dx = context.out[0];
  const std::int64_t channels = dx.shape[3];
  launch_rows(context.stream, dx.shape[0] * channels,
              MovePlane<false>{context.in[0].as<float>(), dx.as<float>(), channels,
                               dx.shape[1] * dx.shape[2]});
}

}  // namespace

const OpDef flatten = {"flatten", infer, grad, nullptr, run};
const OpDef flatten_grad = {"flatten_grad", infer_grad, nullptr, nullptr, run_grad};

}  // namespace sidestep::ops
