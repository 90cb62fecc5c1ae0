// max_pool2d and its gradient. Forward notes which element of each window won, in one byte.
#include <bit>

#include "core/base/host_device.h"
#include "core/ops/launch.h"
#include "core/ops/op_check.h"
#include "core/ops/ops.h"

namespace sidestep::ops {
namespace {

/// `yes` or `no` without a branch: which element of a window wins is random, and mispredicted
/// branches made pooling with few channels ten times slower.
SIDESTEP_HD inline std::uint32_t select(bool condition, std::uint32_t yes, std::uint32_t no) {
  const std::uint32_t mask = 0u - static_cast<std::uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}
SIDESTEP_HD inline float select(bool condition, float yes, float no) {
  return std::bit_cast<float>(
      select(condition, std::bit_cast<std::uint32_t>(yes), std::bit_cast<std::uint32_t>(no)));
}

/// Sizes of x and y, and the window.
struct Windows {
  std::int64_t height, width, channels;
  std::int64_t out_height, out_width;
  std::int64_t kernel, stride;
};

/// One call a row of output pixels. The first of equal elements wins; NaN wins always.
/// kKernel is the window's size, or 0 for any: a known one lets the compiler unroll the window.
template <std::int64_t kKernel>
struct Pool {
  const float* x;
  float* y;
  std::uint8_t* index;
  Windows w;

  SIDESTEP_HD void operator()(std::int64_t row) const {
    const std::int64_t sample = row / w.out_height;
    const std::int64_t top = (row - sample * w.out_height) * w.stride;
    const float* from = x + (sample * w.height + top) * w.width * w.channels;
    for (std::int64_t ow = 0; ow < w.out_width; ++ow) {
      const std::int64_t to = (row * w.out_width + ow) * w.channels;
      window(from + ow * w.stride * w.channels, y + to, index + to);
    }
  }

  SIDESTEP_HD void window(const float* __restrict__ from, float* __restrict__ best,
                          std::uint8_t* __restrict__ which) const {
    const std::int64_t kernel = kKernel > 0 ? kKernel : w.kernel;
    for (std::int64_t c = 0; c < w.channels; ++c) {
      float top = from[c];
      std::uint32_t top_index = 0;
      for (std::int64_t i = 0; i < kernel; ++i) {
        for (std::int64_t j = 0; j < kernel; ++j) {
          const float value = from[(i * w.width + j) * w.channels + c];
          const bool wins = (value > top) | (value != value);
          top = select(wins, value, top);
          top_index = select(wins, static_cast<std::uint32_t>(i * kernel + j), top_index);
        }
      }
      best[c] = top;
      which[c] = static_cast<std::uint8_t>(top_index);
    }
  }
};

/// One call a row of input pixels: gathers from the windows that cover it, in order, so that no two
/// calls write the same element.
template <std::int64_t kKernel>
struct PoolGrad {
  const float* dy;
  const std::uint8_t* index;
  float* dx;
  Windows w;

  SIDESTEP_HD void operator()(std::int64_t row) const {
    const std::int64_t kernel = kKernel > 0 ? kKernel : w.kernel;
    const std::int64_t sample = row / w.height;
    const std::int64_t h = row - sample * w.height;
    float* to = dx + row * w.width * w.channels;
    for (std::int64_t j = 0; j < w.width * w.channels; ++j) to[j] = 0.0f;
    const std::int64_t above = h - kernel;  // the last row whose window does not reach h
    const std::int64_t first = above < 0 ? 0 : above / w.stride + 1;
    for (std::int64_t oh = first; oh < w.out_height && oh * w.stride <= h; ++oh) {
      const std::int64_t from = (sample * w.out_height + oh) * w.out_width * w.channels;
      scatter_row(dy + from, index + from, to, static_cast<int>((h - oh * w.stride) * kernel));
    }
  }

  SIDESTEP_HD void scatter_row(const float* __restrict__ from,
                               const std::uint8_t* __restrict__ which, float* __restrict__ to,
                               int first_index) const {
    const std::int64_t kernel = kKernel > 0 ? kKernel : w.kernel;
    for (std::int64_t ow = 0; ow < w.out_width; ++ow) {
      const std::int64_t at = ow * w.channels;
      float* pixels = to + ow * w.stride * w.channels;
      for (std::int64_t c = 0; c < w.channels; ++c) {
        for (std::int64_t j = 0; j < kernel; ++j) {
          pixels[j * w.channels + c] +=
              select(which[at + c] == first_index + j, from[at + c], 0.0f);
        }
      }
    }
  }
};

std::vector<TensorType> infer(const Attrs& attrs, std::span<const TensorType> in) {
  expect_inputs("max_pool2d", in, 1, 1);
  const bool image = in[0].dtype == DType::f32 && in[0].shape.rank() == 4;
  expect(image, "max_pool2d", "x of float32 and rank 4 (NHWC)", in[0]);
  const std::int64_t kernel = attrs.integer("kernel");
  const std::int64_t stride = attrs.integer("stride");
  expect(kernel >= 1 && kernel <= 16, "max_pool2d", "kernel between 1 and 16", kernel);
  expect(stride >= 1, "max_pool2d", "stride >= 1", stride);
  const Shape& x = in[0].shape;
  expect(x[1] >= kernel && x[2] >= kernel, "max_pool2d", "height and width of at least kernel",
         in[0]);
  const Shape y{x[0], (x[1] - kernel) / stride + 1, (x[2] - kernel) / stride + 1, x[3]};
  return {{y, DType::f32}, {y, DType::u8}};
}

std::vector<MaybeValue> grad(GraphBuilder& builder, NodeRef node, std::span<const MaybeValue> dout,
                             std::span<const bool> wanted) {
  if (!wanted[0] || !dout[0]) return {std::nullopt};
  const Shape& x = node.in_type(0).shape;
  const Attrs attrs{{"kernel", node.attrs().integer("kernel")},
                    {"stride", node.attrs().integer("stride")},
                    {"height", x[1]},
                    {"width", x[2]}};
  return {builder.apply1(max_pool2d_grad, {*dout[0], node.out()[1]}, attrs, grad_name(node))};
}

Windows windows(const Attrs& attrs, const Shape& x, const Shape& y) {
  return {x[1], x[2], x[3], y[1], y[2], attrs.integer("kernel"), attrs.integer("stride")};
}

template <std::int64_t kKernel>
void launch_pool(OpContext& context) {
  const View& x = context.in[0];
  const View& y = context.out[0];
  const Pool<kKernel> body{x.as<float>(), y.as<float>(), context.out[1].as<std::uint8_t>(),
                           windows(context.attrs, x.shape, y.shape)};
  launch_rows(context.stream, y.shape[0] * y.shape[1], body);
}

void run(OpContext& context) {
  if (context.attrs.integer("kernel") == 2) return launch_pool<2>(context);
  launch_pool<0>(context);
}

std::vector<TensorType> infer_grad(const Attrs& attrs, std::span<const TensorType> in) {
  expect_inputs("max_pool2d_grad", in, 2, 2);
  const Shape& dy = in[0].shape;
  expect(in[0].dtype == DType::f32 && dy.rank() == 4, "max_pool2d_grad", "dy of float32 and rank 4",
         in[0]);
  expect(in[1] == TensorType{dy, DType::u8}, "max_pool2d_grad", "uint8 indices shaped like dy",
         in[1]);
  return {{Shape{dy[0], attrs.integer("height"), attrs.integer("width"), dy[3]}, DType::f32}};
}

template <std::int64_t kKernel>
void launch_pool_grad(OpContext& context) {
  const View& dy = context.in[0];
  const View& dx = context.out[0];
  const PoolGrad<kKernel> body{dy.as<float>(), context.in[1].as<std::uint8_t>(), dx.as<float>(),
                               windows(context.attrs, dx.shape, dy.shape)};
  launch_rows(context.stream, dx.shape[0] * dx.shape[1], body);
}

void run_grad(OpContext& context) {
  if (context.attrs.integer("kernel") == 2) return launch_pool_grad<2>(context);
  launch_pool_grad<0>(context);
}

}  // namespace

const OpDef max_pool2d = {"max_pool2d", infer, grad, nullptr, run};
const OpDef max_pool2d_grad = {"max_pool2d_grad", infer_grad, nullptr, nullptr, run_grad};

}  // namespace sidestep::ops
