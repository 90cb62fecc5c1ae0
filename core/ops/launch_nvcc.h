// Launchers of a file compiled by nvcc: kernels on CUDA streams, loops on CPU streams. Included by
// launch.h only.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/device/cuda_check.h"
#include "core/ops/launch_cpu.h"

namespace sidestep {
namespace cuda {

inline constexpr int kThreads = 256;
inline constexpr std::int64_t kMaxBlocks = 4096;
inline constexpr int kReduceBlocks = 128;

inline int blocks_for(std::int64_t n) {
  const std::int64_t blocks = (n + kThreads - 1) / kThreads;
  return static_cast<int>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
}

template <class F>
__global__ void map_kernel(std::int64_t n, F f) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i < n; i += stride) f(i);
}

/// Adds the values of a block's threads, pairwise by halves; the sum is in thread 0.
__device__ inline double block_sum(double value) {
  __shared__ double values[kThreads];
  values[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) values[threadIdx.x] += values[threadIdx.x + half];
    __syncthreads();
  }
  return values[0];
}

/// The grid's size is fixed, so the order depends on n only.
template <class F>
__global__ void reduce_kernel(std::int64_t n, double* partial, F f) {
  double sum = 0;
  const std::int64_t stride = static_cast<std::int64_t>(kReduceBlocks) * kThreads;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (; i < n; i += stride) sum += static_cast<double>(f(i));
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/// A template only so that several files may contain it.
template <int kCount>
__global__ void sum_partials_kernel(double* partial) {
  const double sum = block_sum(threadIdx.x < kCount ? partial[threadIdx.x] : 0.0);
  if (threadIdx.x == 0) partial[0] = sum;
}

inline bool is_cuda(const Stream& stream) { return stream.device().kind == DeviceKind::cuda; }
inline cudaStream_t native(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

template <class F>
void map(Stream& stream, std::int64_t n, F f) {
  if (n <= 0) return;
  const CudaDeviceScope scope(stream.device().index);
  map_kernel<<<blocks_for(n), kThreads, 0, native(stream)>>>(n, f);
  SIDESTEP_CUDA_CHECK(cudaGetLastError());
}

/// Partial sums lie in the stream-ordered pool.
template <class F>
void reduce(Stream& stream, std::int64_t n, double* result, F f) {
  static_assert(kReduceBlocks <= kThreads);
  const CudaDeviceScope scope(stream.device().index);
  const cudaStream_t on = native(stream);
  void* memory = nullptr;
  SIDESTEP_CUDA_CHECK(cudaMallocAsync(&memory, kReduceBlocks * sizeof(double), on));
  auto* partial = static_cast<double*>(memory);
  reduce_kernel<<<kReduceBlocks, kThreads, 0, on>>>(n, partial, f);
  SIDESTEP_CUDA_CHECK(cudaGetLastError());
  sum_partials_kernel<kReduceBlocks><<<1, kThreads, 0, on>>>(partial);
  SIDESTEP_CUDA_CHECK(cudaGetLastError());
  SIDESTEP_CUDA_CHECK(cudaMemcpyAsync(result, partial, sizeof(double), cudaMemcpyDeviceToHost, on));
  SIDESTEP_CUDA_CHECK(cudaFreeAsync(memory, on));
}

}  // namespace cuda

template <class F>
void launch_map(Stream& stream, std::int64_t n, F f) {
  if (cuda::is_cuda(stream)) return cuda::map(stream, n, f);
  cpu::map(stream, n, f);
}

/// One thread a row.
template <class F>
void launch_rows(Stream& stream, std::int64_t rows, F f) {
  if (cuda::is_cuda(stream)) return cuda::map(stream, rows, f);
  cpu::rows(stream, rows, f);
}

template <class F>
void launch_reduce(Stream& stream, std::int64_t n, double* result, F f) {
  if (cuda::is_cuda(stream)) return cuda::reduce(stream, n, result, f);
  cpu::reduce(stream, n, result, f);
}

}  // namespace sidestep
