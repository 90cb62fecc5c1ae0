// Replaces the global new and delete of this test program; apart from its callers, so that the
// compiler does not look through them.
#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/io_ckpt/io_ckpt_util.h"

namespace {
std::atomic<std::size_t> allocations{0};
}

void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace sidestep::testing {
std::size_t allocation_count() { return allocations; }
}  // namespace sidestep::testing
