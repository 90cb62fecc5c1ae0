#include <array>

#include "core/ops/ops.h"

namespace sidestep::ops {

std::span<const OpDef* const> all() {
  static constexpr std::array kAll = {
      &add,           &bias_grad,        &constant,        &conv2d, &conv2d_grad_w,
      &conv2d_grad_x, &flatten,          &flatten_grad,    &linear, &linear_grad_w,
      &linear_grad_x, &max_pool2d,       &max_pool2d_grad, &relu,   &relu_grad,
      &softmax_xent,  &softmax_xent_grad};
  return kAll;
}

}  // namespace sidestep::ops
