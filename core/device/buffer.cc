#include "core/device/buffer.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/device/cuda_memory.h"

namespace sidestep {
namespace {

constexpr std::size_t kAlignment = 64;
/// From here on the kernel is asked what is free first: it grants more than it has, and ends the
/// program when the pages are touched.
constexpr std::size_t kAskFrom = std::size_t{64} << 20;

/// MemAvailable in bytes; the largest number where the kernel does not tell.
std::size_t available_host_memory() {
  std::ifstream info("/proc/meminfo");
  std::string key;
  std::size_t kib = 0;
  for (std::string rest; info >> key >> kib; std::getline(info, rest))
    if (key == "MemAvailable:") return kib * 1024;
  return std::numeric_limits<std::size_t>::max();
}

[[noreturn]] void fail_out_of_host_memory(std::size_t bytes) {
  fail(Exit::device,
       "host memory: expected " + std::to_string(bytes) + " bytes, found " +
           std::to_string(available_host_memory()) +
           " bytes free; use a smaller --batch or model, or fewer ranks a host");
}

std::byte* allocate_host(std::size_t bytes) {
  if (bytes >= kAskFrom && bytes > available_host_memory()) fail_out_of_host_memory(bytes);
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* data = rounded < bytes ? nullptr : std::aligned_alloc(kAlignment, rounded);
  if (data == nullptr) fail_out_of_host_memory(bytes);
  return static_cast<std::byte*>(data);
}

std::string describe(const View& view) {
  return to_string(view.shape) + " " + std::string(to_string(view.dtype)) + " on " +
         to_string(view.device);
}

/// Whether work on these views belongs to a CUDA stream; checks that `stream` is one then.
bool on_gpu(const Stream& stream, std::initializer_list<Device> devices) {
  if (stream.device().kind == DeviceKind::cuda) return true;
  for (const Device device : devices)
    check(device.kind == DeviceKind::cpu, "a CPU stream was given memory of a GPU");
  return false;
}

/// Bytes of a dense tensor; fails when a dimension is negative or the product overflows.
std::size_t checked_bytes(const Shape& shape, DType dtype) {
  std::size_t bytes = size_of(dtype);
  for (const std::int64_t d : shape.dims()) {
    const bool overflow = __builtin_mul_overflow(bytes, static_cast<std::size_t>(d), &bytes);
    if (d < 0 || overflow) check(false, "no tensor has the shape " + to_string(shape));
  }
  return bytes;
}

}  // namespace

void check_dtype(const View& view, DType wanted) {
  if (view.dtype == wanted) return;
  check(false,
        "expected a view of " + std::string(to_string(wanted)) + ", found " + describe(view));
}

Buffer::Buffer(Device device, std::size_t bytes, Kind kind) : size_(bytes), device_(device) {
  const std::size_t wanted = bytes == 0 ? 1 : bytes;  // data() of any buffer is a place
  if (kind == Kind::pinned) {
    device_ = Device{};
    data_ = pinned_allocate(wanted);
    pinned_ = data_ != nullptr;
  } else if (device.kind == DeviceKind::cuda) {
    data_ = cuda_allocate(device, wanted);
    cuda_allocated_ = true;
    return;
  }
  if (data_ == nullptr) data_ = allocate_host(wanted);
  std::memset(data_, 0, wanted);
}

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(device_, other.device_);
  std::swap(cuda_allocated_, other.cuda_allocated_);
  std::swap(pinned_, other.pinned_);
  return *this;
}

Buffer::~Buffer() {
  if (cuda_allocated_) {
    cuda_free(device_, data_);
  } else if (pinned_) {
    pinned_free(data_);
  } else {
    std::free(data_);
  }
}

View Buffer::view(std::size_t offset, const Shape& shape, DType dtype) const {
  const std::size_t bytes = checked_bytes(shape, dtype);
  if (offset > size_ || bytes > size_ - offset) {
    check(false, "a view " + to_string(shape) + " " + std::string(to_string(dtype)) + " at byte " +
                     std::to_string(offset) + " does not fit into " + std::to_string(size_) +
                     " bytes");
  }
  check(offset % size_of(dtype) == 0, "the offset of a view is not aligned for its type");
  return {data_ + offset, shape, dtype, device_};
}

void copy(Stream& stream, const View& dst, const View& src) {
  const std::size_t bytes = dst.bytes();
  if (bytes != src.bytes()) check(false, "copy of " + describe(src) + " to " + describe(dst));
  if (bytes == 0 || dst.data == src.data) return;
  if (on_gpu(stream, {dst.device, src.device})) {
    cuda_copy(stream, dst.data, src.data, bytes);
    return;
  }
  stream.host([to = dst.data, from = src.data, bytes] { std::memcpy(to, from, bytes); });
}

void fill_zero(Stream& stream, const View& dst) {
  const std::size_t bytes = dst.bytes();
  if (bytes == 0) return;
  if (on_gpu(stream, {dst.device})) {
    cuda_fill_zero(stream, dst.data, bytes);
    return;
  }
  stream.host([to = dst.data, bytes] { std::memset(to, 0, bytes); });
}

}  // namespace sidestep
