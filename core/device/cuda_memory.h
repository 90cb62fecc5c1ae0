// GPU and pinned memory for buffer.cc: cuda_memory.cu, or no_cuda.cc in a build without CUDA.
// Any thread; the copies and fills enqueue on the given stream.
#pragma once

#include <cstddef>

#include "core/device/device.h"
#include "core/device/stream.h"

namespace sidestep {

/// `bytes` > 0 zeroed bytes on a GPU. Fails with Exit::device.
std::byte* cuda_allocate(Device device, std::size_t bytes);
void cuda_free(Device device, std::byte* data) noexcept;

/// Page-locked host memory, not zeroed; null without a GPU or when the system refuses.
std::byte* pinned_allocate(std::size_t bytes) noexcept;
void pinned_free(std::byte* data) noexcept;

/// Any pair of devices; `stream` is a CUDA stream.
void cuda_copy(Stream& stream, std::byte* to, const std::byte* from, std::size_t bytes);
void cuda_fill_zero(Stream& stream, std::byte* to, std::size_t bytes);

}  // namespace sidestep
