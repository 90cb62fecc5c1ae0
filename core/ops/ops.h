// The registry: every op of the program, and the functions that put them into a graph.
// See "add an op" in the README.
#pragma once

#include <span>
#include <string>

#include "core/graph/graph.h"

namespace sidestep::ops {

// Forward ops. Images are NHWC float32; weights have PyTorch's shapes. Attributes are integers
// (but constant's value) and must be given.

/// x [n, in], w [out, in], b [out] (optional) -> [n, out]
extern const OpDef linear;
/// x [n, h, w, c], w [k, c, r, s], b [k] (optional) -> [n, h', w', k];
/// attrs stride, padding (zeros on each side)
extern const OpDef conv2d;
/// x [n, h, w, c] -> y [n, h', w', c], uint8 window indices of the same shape;
/// attrs kernel, stride (no padding)
extern const OpDef max_pool2d;
/// elementwise max(x, 0); NaN stays NaN
extern const OpDef relu;
/// x [n, h, w, c] -> [n, c*h*w] in CHW order; [n, f] unchanged
extern const OpDef flatten;
/// logits [n, c], labels int32 [n] -> loss f64 [1] (a sum), weight i64 [1] (= n), correct i64 [1],
/// probabilities [n, c]; a label outside [0, c) makes the loss NaN
extern const OpDef softmax_xent;

// Ops that autodiff appends.
extern const OpDef add;       ///< a + b, same type
extern const OpDef constant;  ///< attrs value (real), n: float64 [n] (the seed of backward)

// Gradients of the above: dy is the gradient of the first output.
extern const OpDef bias_grad;          ///< dy [..., k] -> db [k]
extern const OpDef linear_grad_x;      ///< dy, w -> dx
extern const OpDef linear_grad_w;      ///< dy, x -> dw
extern const OpDef conv2d_grad_x;      ///< dy, w -> dx; attrs stride, padding, height, width (of x)
extern const OpDef conv2d_grad_w;      ///< dy, x -> dw; attrs stride, padding, height, width (of w)
extern const OpDef max_pool2d_grad;    ///< dy, indices -> dx; attrs kernel, stride, height, width
extern const OpDef relu_grad;          ///< dy, y -> dx
extern const OpDef flatten_grad;       ///< dy [n, c*h*w] -> dx [n, h, w, c]; attrs height, width
extern const OpDef softmax_xent_grad;  ///< dloss f64 [1], probabilities, labels -> dlogits

/// All ops, for tables and tests.
std::span<const OpDef* const> all();

}  // namespace sidestep::ops
