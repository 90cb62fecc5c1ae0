// Where memory lives and work runs.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace sidestep {

enum class DeviceKind : std::uint8_t { cpu, cuda };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  auto operator<=>(const Device&) const = default;
};

/// "cpu" or "cuda:1"
std::string to_string(Device device);

/// What the CUDA runtime says about this process. Any error of the probe means "no GPU".
struct CudaProbe {
  bool compiled = false;    ///< the program was built with CUDA
  int devices = 0;          ///< visible GPUs, 0 on any error
  std::string explanation;  ///< why there is none, in the runtime's words; empty if there is one
};
CudaProbe probe_cuda();

}  // namespace sidestep
