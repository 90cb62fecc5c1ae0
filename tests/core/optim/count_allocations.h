// Counts the calls of operator new in a test program that links count_allocations.cc. Any thread.
#pragma once

#include <cstdint>

namespace sidestep {

/// Calls so far, on all threads.
std::int64_t allocations();

}  // namespace sidestep
