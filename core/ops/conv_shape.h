// Sizes of a convolution, shared by the op and its two CPU implementations.
#pragma once

#include <cstdint>

namespace sidestep::ops {

/// x [n, h, w, c], weight [k, c, r, s], y [n, oh, ow, k]; zero padding `pad` on each side.
struct ConvShape {
  std::int64_t n, h, w, c;
  std::int64_t k, r, s;
  std::int64_t stride, pad;
  std::int64_t oh, ow;
};

enum class ConvPass { forward, grad_x, grad_w };

}  // namespace sidestep::ops
