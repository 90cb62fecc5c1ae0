// Launchers of a file compiled by the host compiler: CPU streams only. Included by launch.h only.
#pragma once

#include <cstdint>

#include "core/ops/launch_cpu.h"

namespace sidestep {

template <class F>
void launch_map(Stream& stream, std::int64_t n, F f) {
  cpu::map(stream, n, f);
}

template <class F>
void launch_rows(Stream& stream, std::int64_t rows, F f) {
  cpu::rows(stream, rows, f);
}

template <class F>
void launch_reduce(Stream& stream, std::int64_t n, double* result, F f) {
  cpu::reduce(stream, n, result, f);
}

}  // namespace sidestep
