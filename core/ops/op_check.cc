#include "core/ops/op_check.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace sidestep::ops {

void expect(bool holds, std::string_view op, std::string_view wanted, const TensorType& got) {
  if (!holds)
    fail(Exit::settings, fmt::format("[{}] expected {}, got {}", op, wanted, to_string(got)));
}

void expect(bool holds, std::string_view op, std::string_view wanted, std::int64_t got) {
  if (!holds) fail(Exit::settings, fmt::format("[{}] expected {}, got {}", op, wanted, got));
}

void expect_inputs(std::string_view op, std::span<const TensorType> in, std::size_t low,
                   std::size_t high) {
  if (in.size() >= low && in.size() <= high) return;
  const std::string wanted =
      low == high ? fmt::format("{}", low) : fmt::format("{} to {}", low, high);
  fail(Exit::settings, fmt::format("[{}] expected {} inputs, got {}", op, wanted, in.size()));
}

void expect_cpu(std::string_view op, Device device) {
  if (device.kind == DeviceKind::cpu) return;
  fail(Exit::device,
       fmt::format("[{0}] expected a CPU device, got {1}: {0} has no CUDA form in this "
                   "build; run on the CPU",
                   op, to_string(device)));
}

std::string grad_name(const NodeRef& node, std::string_view part) {
  return part.empty() ? fmt::format("d.{}", node.name())
                      : fmt::format("d.{}.{}", node.name(), part);
}

}  // namespace sidestep::ops
