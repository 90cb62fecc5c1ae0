// Counts the calls of operator new in a test program that links allocation_count.cc. Any thread.
#pragma once

#include <cstdint>

namespace sidestep::testing {

/// Calls of any operator new by all threads since the program began.
std::int64_t allocation_count();

}  // namespace sidestep::testing
