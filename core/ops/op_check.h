// Error messages of infer functions, without a formatting library (nvcc compiles users of this).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/graph/graph.h"

namespace sidestep::ops {

/// Fails with Exit::settings and "[op] expected <wanted>, got <type>" unless `holds`.
void expect(bool holds, std::string_view op, std::string_view wanted, const TensorType& got);

/// Fails with Exit::settings and "[op] expected <wanted>, got <number>" unless `holds`.
void expect(bool holds, std::string_view op, std::string_view wanted, std::int64_t got);

/// Fails unless the number of inputs lies in [low, high].
void expect_inputs(std::string_view op, std::span<const TensorType> in, std::size_t low,
                   std::size_t high);

/// Fails with Exit::device: "[op] expected a CPU device: <op> has no CUDA form in this build".
void expect_cpu(std::string_view op, Device device);

/// Name of a node that computes a gradient: "d.conv1", "d.conv1.weight".
std::string grad_name(const NodeRef& node, std::string_view part = {});

}  // namespace sidestep::ops
