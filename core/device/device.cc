#include "core/device/device.h"

namespace sidestep {

std::string to_string(Device device) {
  if (device.kind == DeviceKind::cpu) return "cpu";
  return "cuda:" + std::to_string(device.index);
}

}  // namespace sidestep
