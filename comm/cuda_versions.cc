#include "comm/cuda_versions.h"

#include <cuda_runtime_api.h>
#include <cudnn_version.h>
#include <fmt/format.h>
#include <nccl.h>

extern "C" std::size_t cudnnGetVersion();  // cudnn.h itself needs much of CUDA's headers

namespace sidestep {
namespace {

std::string dotted(int major, int minor, int patch) {
  return fmt::format("{}.{}.{}", major, minor, patch);
}

std::string cuda(int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); }

}  // namespace

std::vector<LibraryVersion> cuda_library_versions() {
  int runtime = 0;
  int driver = 0;  // stays 0 without a driver
  int nccl = 0;
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);
  ncclGetVersion(&nccl);
  const auto cudnn = static_cast<int>(cudnnGetVersion());
  return {{"CUDA", cuda(CUDART_VERSION), cuda(runtime)},
          {"CUDA driver", "-", driver == 0 ? "none" : cuda(driver)},
          {"cuDNN", dotted(CUDNN_MAJOR, CUDNN_MINOR, CUDNN_PATCHLEVEL),
           dotted(cudnn / 10000, cudnn / 100 % 100, cudnn % 100)},
          {"NCCL", dotted(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH),
           dotted(nccl / 10000, nccl / 100 % 100, nccl % 100)}};
}

}  // namespace sidestep
