#include "core/device/cuda_check.h"
#include "core/device/device.h"

namespace sidestep {

CudaProbe probe_cuda() {
  CudaProbe probe;
  probe.compiled = true;
  int devices = 0;  // some errors leave it untouched
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess) {
    cudaGetLastError();
    probe.explanation = cudaGetErrorString(status);
  } else if (devices <= 0) {
    probe.explanation = "no GPU is visible to this process";
  } else {
    probe.devices = devices;
  }
  return probe;
}

}  // namespace sidestep
