#include "core/ops/threads.h"

#include <omp.h>

#include "core/base/error.h"

namespace sidestep {

// OpenBLAS (OpenMP flavour) and oneDNN both ask OpenMP at each call.
void set_compute_threads(int n) {
  check(n >= 1, "at least one compute thread");
  omp_set_num_threads(n);
}

int compute_threads() { return omp_get_max_threads(); }

}  // namespace sidestep
