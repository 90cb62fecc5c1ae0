// The three launchers as loops in one task of a CPU stream. Included by launch.h only.
#pragma once

#include <cstdint>

#include "core/device/stream.h"

namespace sidestep::cpu {

/// The functor is copied to the stack so that the compiler sees that nothing aliases it; calls of
/// different i are independent by contract, which is what ivdep states.
template <class F>
void map(Stream& stream, std::int64_t n, F f) {
  stream.host([n, f] {
    const F local = f;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) local(i);
  });
}

template <class F>
void rows(Stream& stream, std::int64_t rows, F f) {
  stream.host([rows, f] {
    const F local = f;
    for (std::int64_t row = 0; row < rows; ++row) local(row);
  });
}

/// Lane j adds the elements i = j mod kLanes, then the lanes are added in order: one fixed order
/// that still fills vector registers.
template <class F>
void reduce(Stream& stream, std::int64_t n, double* result, F f) {
  stream.host([n, result, f] {
    constexpr std::int64_t kLanes = 16;
    const F local = f;
    double lanes[kLanes] = {};
    const std::int64_t whole = n - n % kLanes;
    for (std::int64_t i = 0; i < whole; i += kLanes) {
      for (std::int64_t j = 0; j < kLanes; ++j) lanes[j] += static_cast<double>(local(i + j));
    }
    for (std::int64_t i = whole; i < n; ++i) lanes[i - whole] += static_cast<double>(local(i));
    double sum = 0;
    for (const double lane : lanes) sum += lane;
    *result = sum;
  });
}

}  // namespace sidestep::cpu
