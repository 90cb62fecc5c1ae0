// SIDESTEP_HD marks functions that run on the CPU (g++) and on the GPU (nvcc), from one source.
#pragma once

#if defined(__CUDACC__)
#define SIDESTEP_HD __host__ __device__
#else
#define SIDESTEP_HD
#endif
