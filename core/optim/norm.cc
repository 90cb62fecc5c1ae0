#include "core/optim/norm.h"

#include "core/base/host_device.h"
#include "core/ops/launch.h"

namespace sidestep {
namespace {

struct Square {
  const float* x;
  SIDESTEP_HD double operator()(std::int64_t i) const {
    const double value = x[i];
    return value * value;
  }
};

}  // namespace

void sum_of_squares(Stream& stream, const View& x, double* result) {
  launch_reduce(stream, x.numel(), result, Square{x.as<float>()});
}

}  // namespace sidestep
