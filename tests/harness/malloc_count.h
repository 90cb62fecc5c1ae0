// Counts calls of the C allocator in a test program that links malloc_count.cc, and says who made
// them. Not for sanitizer builds, which have an allocator of their own. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sidestep::testing {

/// Allocations of one kind within the window.
struct AllocationSite {
  std::string thread;  ///< name of the calling thread
  std::string
      shared_object;  ///< file name of the third-party library inside which it happened; empty: ours
  std::string stack;  ///< the callers, innermost first, of one of them
  std::int64_t count = 0;
};

/// Opens the window: from now on malloc, calloc, realloc, posix_memalign, aligned_alloc, memalign
/// and operator new are counted in all threads.
void begin_counting_allocations();
/// Closes the window. An allocation belongs to the innermost caller that is neither C nor C++
/// run-time library. At most 20,000 are kept apart; the rest is one site without a stack.
std::vector<AllocationSite> end_counting_allocations();

}  // namespace sidestep::testing
