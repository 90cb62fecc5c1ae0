// oneDNN behind a small interface: the one place that knows its types and its version.
// Create on the main thread (compiles kernels, allocates); run on the compute stream.
#pragma once

#include <memory>

#include "core/ops/conv_shape.h"

namespace sidestep::ops {

/// One pass of a convolution over dense NHWC images and dense OIHW weights, float32. Weights are
/// reordered into the layout that oneDNN prefers on each run, in scratch of this object.
class OnednnConv final {
 public:
  /// Fails with Exit::device when oneDNN has no implementation. `bias`: forward only.
  OnednnConv(ConvPass pass, const ConvShape& shape, bool bias);
  ~OnednnConv();
  OnednnConv(const OnednnConv&) = delete;
  OnednnConv& operator=(const OnednnConv&) = delete;

  /// y = conv(x, weight) + bias; bias may be null if it was not asked for.
  void forward(const float* x, const float* weight, const float* bias, float* y);
  /// dx from dy and weight.
  void grad_x(const float* dy, const float* weight, float* dx);
  /// dweight from dy and x.
  void grad_w(const float* dy, const float* x, float* dweight);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sidestep::ops
