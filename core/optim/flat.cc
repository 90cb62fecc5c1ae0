#include "core/optim/flat.h"

#include "core/base/host_device.h"
#include "core/ops/launch.h"

namespace sidestep {
namespace {

struct AddInto {
  float* y;
  const float* x;
  SIDESTEP_HD void operator()(std::int64_t i) const { y[i] += x[i]; }
};

struct Scale {
  float* x;
  float factor;
  SIDESTEP_HD void operator()(std::int64_t i) const { x[i] *= factor; }
};

struct SwapContents {
  float* a;
  float* b;
  SIDESTEP_HD void operator()(std::int64_t i) const {
    const float kept = a[i];
    a[i] = b[i];
    b[i] = kept;
  }
};

struct WeightedChange {
  float* out;
  const float* before;
  const float* now;
  const MeanScalars* scalars;
  SIDESTEP_HD void operator()(std::int64_t i) const {
    out[i] = scalars->own * (before[i] - now[i]);
  }
};

struct WeightedCopy {
  float* out;
  const float* x;
  const MeanScalars* scalars;
  SIDESTEP_HD void operator()(std::int64_t i) const { out[i] = scalars->own * x[i]; }
};

struct TakeMean {
  float* x;
  const float* sum;
  const MeanScalars* scalars;
  SIDESTEP_HD void operator()(std::int64_t i) const {
    x[i] = scalars->inverse > 0 ? scalars->inverse * sum[i] : x[i];
  }
};

struct OuterStep {
  float* w;
  float* before;
  const float* sum;
  const MeanScalars* scalars;
  SIDESTEP_HD void operator()(std::int64_t i) const {
    before[i] -= scalars->lr * (scalars->inverse * sum[i]);
    w[i] = before[i];
  }
};

struct OuterMomentumStep {
  float* w;
  float* before;
  float* m;
  const float* sum;
  bool nesterov;
  const MeanScalars* scalars;
  SIDESTEP_HD void operator()(std::int64_t i) const {
    const float change = scalars->inverse * sum[i];
    const float buffer = scalars->momentum * m[i] + scalars->into * change;
    const float direction =
        nesterov ? change + scalars->momentum * scalars->out_of * buffer : scalars->out_of * buffer;
    m[i] = buffer;
    before[i] -= scalars->lr * direction;
    w[i] = before[i];
  }
};

struct ElasticPull {
  float* out;
  float* x;
  const float* centre;
  float alpha;
  SIDESTEP_HD void operator()(std::int64_t i) const {
    const float pull = alpha * (x[i] - centre[i]);
    x[i] -= pull;
    out[i] = pull;
  }
};

float* data(const View& view) { return view.as<float>(); }

}  // namespace

void add_into(Stream& stream, const View& y, const View& x) {
  launch_map(stream, y.numel(), AddInto{data(y), data(x)});
}

void scale(Stream& stream, const View& x, float factor) {
  launch_map(stream, x.numel(), Scale{x.as<float>(), factor});
}

void swap_contents(Stream& stream, const View& a, const View& b) {
  launch_map(stream, a.numel(), SwapContents{data(a), data(b)});
}

void weighted_change(Stream& stream, const View& out, const View& before, const View& now,
                     const MeanScalars* scalars) {
  launch_map(stream, out.numel(), WeightedChange{data(out), data(before), data(now), scalars});
}

void weighted_copy(Stream& stream, const View& out, const View& x, const MeanScalars* scalars) {
  launch_map(stream, out.numel(), WeightedCopy{data(out), data(x), scalars});
}

void take_mean(Stream& stream, const View& x, const View& sum, const MeanScalars* scalars) {
  launch_map(stream, x.numel(), TakeMean{data(x), data(sum), scalars});
}

void outer_step(Stream& stream, const View& w, const View& before, const View& sum,
                const MeanScalars* scalars) {
  launch_map(stream, w.numel(), OuterStep{data(w), data(before), data(sum), scalars});
}

void outer_momentum_step(Stream& stream, const View& w, const View& before, const View& m,
                         const View& sum, bool nesterov, const MeanScalars* scalars) {
  launch_map(stream, w.numel(),
             OuterMomentumStep{data(w), data(before), data(m), data(sum), nesterov, scalars});
}

void elastic_pull(Stream& stream, const View& out, const View& x, const View& centre, float alpha) {
  launch_map(stream, out.numel(), ElasticPull{data(out), data(x), data(centre), alpha});
}

}  // namespace sidestep
