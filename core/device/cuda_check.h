// Checked CUDA runtime calls and owners of CUDA handles. Included by files that nvcc compiles and
// by those that call the CUDA runtime; any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <utility>

#include "core/base/error.h"

namespace sidestep {

/// Fails with Exit::device and the runtime's words when a call did not succeed.
inline void check_cuda(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // a non-sticky error must not be reported again by the next call
  fail(Exit::device, std::string("CUDA: expected success of ") + call + ", found " +
                         cudaGetErrorName(status) + " (" + cudaGetErrorString(status) +
                         "); check the GPU with nvidia-smi, or run on the CPU (--device cpu)");
}

#define SIDESTEP_CUDA_CHECK(call) ::sidestep::check_cuda((call), #call)

/// Owns one CUDA handle; move-only.
template <class Handle, cudaError_t (*destroy)(Handle)>
class UniqueCuda {
 public:
  UniqueCuda() = default;
  explicit UniqueCuda(Handle handle) : handle_(handle) {}
  UniqueCuda(UniqueCuda&& other) noexcept : handle_(std::exchange(other.handle_, Handle{})) {}
  UniqueCuda& operator=(UniqueCuda&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~UniqueCuda() {
    if (handle_ != Handle{}) destroy(handle_);  // fails only while the process ends
  }
  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != Handle{}; }

 private:
  Handle handle_{};
};

using CudaEvent = UniqueCuda<cudaEvent_t, cudaEventDestroy>;
using CudaStreamHandle = UniqueCuda<cudaStream_t, cudaStreamDestroy>;

/// Makes a GPU the calling thread's current one for a scope.
class CudaDeviceScope {
 public:
  explicit CudaDeviceScope(int index) {
    SIDESTEP_CUDA_CHECK(cudaGetDevice(&before_));
    if (index != before_) SIDESTEP_CUDA_CHECK(cudaSetDevice(index));
  }
  CudaDeviceScope(const CudaDeviceScope&) = delete;
  CudaDeviceScope& operator=(const CudaDeviceScope&) = delete;
  ~CudaDeviceScope() { cudaSetDevice(before_); }

 private:
  int before_ = 0;
};

}  // namespace sidestep
