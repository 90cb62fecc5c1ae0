// How many threads the CPU libraries (BLAS, oneDNN) use. OpenMP keeps this number per calling
// thread, and oneDNN fixes it when an op is prepared: set it on the thread that makes an Executor
// before it does, and on the compute stream's worker by a task of that stream. A number above the
// free cores costs milliseconds per call.
#pragma once

namespace sidestep {

/// Sets the number for library calls of the calling thread; n >= 1.
void set_compute_threads(int n);

/// The number for library calls of the calling thread.
int compute_threads();

}  // namespace sidestep
