// Memory on a device, and views of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/dtype.h"
#include "core/base/shape.h"
#include "core/device/device.h"
#include "core/device/stream.h"

namespace sidestep {

/// A typed, shaped, dense row-major window into memory that somebody else owns.
struct View {
  std::byte* data = nullptr;
  Shape shape;
  DType dtype = DType::f32;
  Device device;

  std::int64_t numel() const { return shape.numel(); }
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype); }
  /// Typed pointer; checks the dtype.
  template <class T>
  T* as() const;
};

void check_dtype(const View& view, DType wanted);

template <class T>
T* View::as() const {
  check_dtype(*this, dtype_of<T>);
  return reinterpret_cast<T*>(data);
}

/// Owns bytes on a device, 64-byte aligned at least, zero at creation. Move-only.
/// `pinned` host memory falls back to plain memory without a GPU.
class Buffer {
 public:
  enum class Kind : std::uint8_t { device, pinned };

  Buffer() = default;
  /// Fails with Exit::device naming wanted and free bytes when there is not enough memory.
  Buffer(Device device, std::size_t bytes, Kind kind = Kind::device);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  Device device() const { return device_; }
  /// A view at a byte offset; checks that it fits and is aligned for the dtype.
  View view(std::size_t offset, const Shape& shape, DType dtype) const;

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  Device device_;
  bool cuda_allocated_ = false;
  bool pinned_ = false;
};

/// Enqueues dst = src (same bytes; any pair of devices).
void copy(Stream& stream, const View& dst, const View& src);
/// Enqueues dst = 0.
void fill_zero(Stream& stream, const View& dst);

}  // namespace sidestep
