// Slow, obvious float64 versions of the ops, for comparison only.
#pragma once

#include "tests/harness/op_harness.h"

namespace sidestep::testing::reference {

std::vector<Tensor64> add(const Attrs& attrs, std::span<const Tensor64> in);
std::vector<Tensor64> bias_grad(const Attrs& attrs, std::span<const Tensor64> in);
std::vector<Tensor64> constant(const Attrs& attrs, std::span<const Tensor64> in);
std::vector<Tensor64> conv2d(const Attrs& attrs, std::span<const Tensor64> in);
std::vector<Tensor64> flatten(const Attrs& attrs, std::span<const Tensor64> in);
std::vector<Tensor64> linear(const Attrs& attrs, std::span<const Tensor64> in);
std::vector<Tensor64> max_pool2d(const Attrs& attrs, std::span<const Tensor64> in);
std::vector<Tensor64> relu(const Attrs& attrs, std::span<const Tensor64> in);
std::vector<Tensor64> softmax_xent(const Attrs& attrs, std::span<const Tensor64> in);

}  // namespace sidestep::testing::reference
