#include "core/device/cuda_check.h"
#include "core/device/cuda_memory.h"

namespace sidestep {
namespace {

[[noreturn]] void fail_out_of_memory(Device device, std::size_t bytes) {
  cudaGetLastError();
  std::size_t free_bytes = 0;
  std::size_t total = 0;
  cudaMemGetInfo(&free_bytes, &total);
  fail(Exit::device, to_string(device) + ": expected " + std::to_string(bytes) +
                         " bytes of memory, found " + std::to_string(free_bytes) + " of " +
                         std::to_string(total) +
                         " bytes free; use a smaller --batch or model, and see with "
                         "nvidia-smi who else uses this GPU");
}

cudaStream_t native(const Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }

}  // namespace

std::byte* cuda_allocate(Device device, std::size_t bytes) {
  const CudaDeviceScope scope(device.index);
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) fail_out_of_memory(device, bytes);
  check_cuda(status, "cudaMalloc");
  // Our streams do not wait for the default stream, so it has to be done when we return.
  SIDESTEP_CUDA_CHECK(cudaMemset(data, 0, bytes));
  SIDESTEP_CUDA_CHECK(cudaStreamSynchronize(nullptr));
  return static_cast<std::byte*>(data);
}

void cuda_free(Device, std::byte* data) noexcept { cudaFree(data); }

std::byte* pinned_allocate(std::size_t bytes) noexcept {
  int devices = 0;
  void* data = nullptr;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0 &&
      cudaHostAlloc(&data, bytes, cudaHostAllocPortable) == cudaSuccess) {
    return static_cast<std::byte*>(data);
  }
  cudaGetLastError();
  return nullptr;
}

void pinned_free(std::byte* data) noexcept { cudaFreeHost(data); }

void cuda_copy(Stream& stream, std::byte* to, const std::byte* from, std::size_t bytes) {
  SIDESTEP_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native(stream)));
}

void cuda_fill_zero(Stream& stream, std::byte* to, std::size_t bytes) {
  SIDESTEP_CUDA_CHECK(cudaMemsetAsync(to, 0, bytes, native(stream)));
}

}  // namespace sidestep
