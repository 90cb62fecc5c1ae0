#include "tests/harness/malloc_count.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>

// glibc's allocator under its own names; ours below take the public ones for the whole process.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}

namespace {

constexpr int kDepth = 24;
constexpr std::size_t kMost = 20'000;

struct Call {
  std::array<char, 16> thread;
  std::array<void*, kDepth> stack;
  int depth;
};

// The allocator has no object that could hold these.
std::atomic<bool> counting{false};
std::atomic<std::size_t> used{0};
std::array<Call, kMost> calls;
thread_local bool inside = false;

/// Notes one call. backtrace() may allocate itself, which is not counted.
void note() {
  if (!counting.load(std::memory_order_relaxed) || inside) return;
  inside = true;
  const std::size_t i = used.fetch_add(1);
  if (i < kMost) {
    Call& call = calls[i];
    prctl(PR_GET_NAME, call.thread.data());
    call.depth = backtrace(call.stack.data(), kDepth);
  }
  inside = false;
}

struct Place {
  std::string shared_object;  ///< file name; empty for the program itself
  std::string function;  ///< or its offset
};

Place place_of(void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {"unknown", "?"};
  Dl_info self{};
  dladdr(reinterpret_cast<void*>(&note), &self);
  Place place;
  if (info.dli_fbase != self.dli_fbase)
    place.shared_object = std::filesystem::path(info.dli_fname).filename().string();
  if (info.dli_sname != nullptr) {
    int status = 0;
    char* plain = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
    place.function = status == 0 ? plain : info.dli_sname;
    std::free(plain);
  } else {
    std::array<char, 32> offset{};
    std::snprintf(
        offset.data(), offset.size(), "+0x%zx",
        static_cast<std::size_t>(static_cast<char*>(address) - static_cast<char*>(info.dli_fbase)));
    place.function = offset.data();
  }
  return place;
}

bool is_run_time(const std::string& library) {
  constexpr std::array kNames = {"libc.so", "libc-",    "libstdc++", "libgcc_s",
                                 "libm.so", "ld-linux", "libpthread"};
  return std::ranges::any_of(kNames, [&](const char* name) { return library.starts_with(name); });
}

/// The frames of this file on top of a stack.
constexpr int kOwnFrames = 2;

}  // namespace

extern "C" {

void* malloc(std::size_t bytes) {
  note();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  note();
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, std::size_t bytes) {
  note();
  return __libc_realloc(old, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  note();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  note();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** to, std::size_t alignment, std::size_t bytes) {
  note();
  void* data = __libc_memalign(alignment, bytes);
  if (data == nullptr) return ENOMEM;
  *to = data;
  return 0;
}

}  // extern "C"

namespace sidestep::testing {

void begin_counting_allocations() {
  std::array<void*, kDepth> stack{};
  backtrace(stack.data(), kDepth);  // loads what it needs now, not inside malloc
  used = 0;
  counting = true;
}

std::vector<AllocationSite> end_counting_allocations() {
  counting = false;
  const std::size_t all = used.load();
  std::map<std::pair<std::string, std::string>, AllocationSite>
      sites;  // by thread and innermost caller
  for (std::size_t i = 0; i < std::min(all, kMost); ++i) {
    const Call& call = calls[i];
    std::string library = "?", first, stack;
    for (int frame = kOwnFrames; frame < call.depth; ++frame) {
      const Place place = place_of(call.stack[static_cast<std::size_t>(frame)]);
      if (library == "?" && !is_run_time(place.shared_object)) {
        library = place.shared_object;
        first = place.shared_object + place.function;
      }
      stack += "\n    " + (place.shared_object.empty() ? std::string("program") : place.shared_object) + ": " +
               place.function;
    }
    AllocationSite& site = sites[{call.thread.data(), first}];
    site = {call.thread.data(), library, stack, site.count + 1};
  }
  std::vector<AllocationSite> list;
  for (auto& [key, site] : sites) list.push_back(std::move(site));
  if (all > kMost) list.push_back({"any", "", "", static_cast<std::int64_t>(all - kMost)});
  return list;
}

}  // namespace sidestep::testing
