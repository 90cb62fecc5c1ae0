// The launchers of single-source ops: a small functor whose call operator is marked SIDESTEP_HD
// runs on the CPU as a loop in one task of the stream, on the GPU as a kernel. They only enqueue.
//
//   launch_map(stream, n, f)             f(i) for each i in [0, n), in any order, independent
//   launch_rows(stream, rows, f)         f(row) for each row; for bodies that loop over a row
//   launch_reduce(stream, n, result, f)  *result = sum of f(i) in float64, in one fixed order that
//                                        depends on n and the kind of device only; `result` is host
//                                        memory (pinned, for speed) that outlives the work
//
// Functors are named structs that hold pointers and numbers by value (up to about 170 bytes). They
// are not lambdas: nvcc wraps host+device lambdas so that host loops no longer vectorise.
// A file that uses them is compiled by g++ or, with CUDA on, by nvcc; the choice is made here.
#pragma once

#if defined(__CUDACC__)
#include "core/ops/launch_nvcc.h"
#else
#include "core/ops/launch_host.h"
#endif
