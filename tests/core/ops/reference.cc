#include "tests/core/ops/reference.h"

#include <cmath>

namespace sidestep::testing::reference {
namespace {

Tensor64 zeros(const Shape& shape, DType dtype = DType::f32) {
  return {{shape, dtype}, std::vector<double>(static_cast<std::size_t>(shape.numel()))};
}

/// Row-major place of an element of a rank-4 tensor.
std::int64_t at(const Tensor64& t, std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
  const Shape& s = t.type.shape;
  return ((a * s[1] + b) * s[2] + c) * s[3] + d;
}

}  // namespace

std::vector<Tensor64> add(const Attrs&, std::span<const Tensor64> in) {
  Tensor64 y = in[0];
  for (std::size_t i = 0; i < y.values.size(); ++i) y.values[i] += in[1].values[i];
  return {y};
}

std::vector<Tensor64> bias_grad(const Attrs&, std::span<const Tensor64> in) {
  const Shape& shape = in[0].type.shape;
  const std::int64_t columns = shape[shape.rank() - 1];
  Tensor64 db = zeros({columns});
  for (std::int64_t i = 0; i < shape.numel(); ++i) db[i % columns] += in[0][i];
  return {db};
}

std::vector<Tensor64> constant(const Attrs& attrs, std::span<const Tensor64>) {
  Tensor64 y = zeros({attrs.integer("n")}, DType::f64);
  for (double& v : y.values) v = attrs.real("value");
  return {y};
}

std::vector<Tensor64> conv2d(const Attrs& attrs, std::span<const Tensor64> in) {
  const Tensor64 &x = in[0], &w = in[1];
  const Shape &xs = x.type.shape, &ws = w.type.shape;
  const std::int64_t stride = attrs.integer("stride"), pad = attrs.integer("padding");
  Tensor64 y = zeros({xs[0], (xs[1] + 2 * pad - ws[2]) / stride + 1,
                      (xs[2] + 2 * pad - ws[3]) / stride + 1, ws[0]});
  const Shape& ys = y.type.shape;
  const auto pixel = [&](std::int64_t n, std::int64_t oh, std::int64_t ow, std::int64_t k) {
    double sum = in.size() == 3 ? in[2][k] : 0;
    for (std::int64_t c = 0; c < xs[3]; ++c)
      for (std::int64_t r = 0; r < ws[2]; ++r)
        for (std::int64_t s = 0; s < ws[3]; ++s) {
          const std::int64_t h = oh * stride + r - pad, v = ow * stride + s - pad;
          if (h < 0 || h >= xs[1] || v < 0 || v >= xs[2]) continue;
          sum += x[at(x, n, h, v, c)] * w[at(w, k, c, r, s)];
        }
    return sum;
  };
  for (std::int64_t n = 0; n < ys[0]; ++n)
    for (std::int64_t oh = 0; oh < ys[1]; ++oh)
      for (std::int64_t ow = 0; ow < ys[2]; ++ow)
        for (std::int64_t k = 0; k < ys[3]; ++k) y[at(y, n, oh, ow, k)] = pixel(n, oh, ow, k);
  return {y};
}

std::vector<Tensor64> flatten(const Attrs&, std::span<const Tensor64> in) {
  const Tensor64& x = in[0];
  const Shape& s = x.type.shape;
  Tensor64 y = zeros({s[0], s.row_numel()});
  if (s.rank() == 2) return {x};
  std::int64_t next = 0;
  for (std::int64_t n = 0; n < s[0]; ++n)
    for (std::int64_t c = 0; c < s[3]; ++c)
      for (std::int64_t h = 0; h < s[1]; ++h)
        for (std::int64_t w = 0; w < s[2]; ++w) y[next++] = x[at(x, n, h, w, c)];
  return {y};
}

std::vector<Tensor64> linear(const Attrs&, std::span<const Tensor64> in) {
  const Shape &xs = in[0].type.shape, &ws = in[1].type.shape;
  Tensor64 y = zeros({xs[0], ws[0]});
  for (std::int64_t n = 0; n < xs[0]; ++n)
    for (std::int64_t o = 0; o < ws[0]; ++o) {
      double sum = in.size() == 3 ? in[2][o] : 0;
      for (std::int64_t i = 0; i < xs[1]; ++i) sum += in[0][n * xs[1] + i] * in[1][o * xs[1] + i];
      y[n * ws[0] + o] = sum;
    }
  return {y};
}

std::vector<Tensor64> max_pool2d(const Attrs& attrs, std::span<const Tensor64> in) {
  const Tensor64& x = in[0];
  const Shape& s = x.type.shape;
  const std::int64_t kernel = attrs.integer("kernel"), stride = attrs.integer("stride");
  Tensor64 y = zeros({s[0], (s[1] - kernel) / stride + 1, (s[2] - kernel) / stride + 1, s[3]});
  Tensor64 index = zeros(y.type.shape, DType::u8);
  const Shape& ys = y.type.shape;
  for (std::int64_t n = 0; n < ys[0]; ++n)
    for (std::int64_t oh = 0; oh < ys[1]; ++oh)
      for (std::int64_t ow = 0; ow < ys[2]; ++ow)
        for (std::int64_t c = 0; c < ys[3]; ++c) {
          const std::int64_t to = at(y, n, oh, ow, c);
          y[to] = -INFINITY;
          for (std::int64_t i = 0; i < kernel * kernel; ++i) {
            const double v = x[at(x, n, oh * stride + i / kernel, ow * stride + i % kernel, c)];
            if (v <= y[to]) continue;
            y[to] = v;
            index[to] = static_cast<double>(i);
          }
        }
  return {y, index};
}

std::vector<Tensor64> relu(const Attrs&, std::span<const Tensor64> in) {
  Tensor64 y = in[0];
  for (double& v : y.values) v = v > 0 ? v : 0;
  return {y};
}

std::vector<Tensor64> softmax_xent(const Attrs&, std::span<const Tensor64> in) {
  const Shape& s = in[0].type.shape;
  Tensor64 loss = zeros({1}, DType::f64), weight = zeros({1}, DType::i64);
  Tensor64 correct = zeros({1}, DType::i64), p = zeros(s);
  weight[0] = static_cast<double>(s[0]);
  for (std::int64_t row = 0; row < s[0]; ++row) {
    const auto x = [&](std::int64_t j) { return in[0][row * s[1] + j]; };
    const auto label = static_cast<std::int64_t>(in[1][row]);
    double sum = 0;
    bool first_best = true;
    for (std::int64_t j = 0; j < s[1]; ++j) {
      sum += std::exp(x(j));
      if (x(j) > x(label) || (x(j) == x(label) && j < label)) first_best = false;
    }
    for (std::int64_t j = 0; j < s[1]; ++j) p[row * s[1] + j] = std::exp(x(j)) / sum;
    loss[0] -= std::log(std::exp(x(label)) / sum);
    correct[0] += first_best ? 1 : 0;
  }
  return {loss, weight, correct, p};
}

}  // namespace sidestep::testing::reference
