// The CUDA side of core/device in a build without CUDA.
#include "core/base/error.h"
#include "core/device/cuda_memory.h"
#include "core/device/device.h"
#include "core/device/stream.h"

namespace sidestep {
namespace {

[[noreturn]] void fail_without_cuda(const std::string& what) {
  fail(Exit::device, what +
                         ": expected a GPU, found a program built without CUDA; use the CPU "
                         "(--device cpu) or build with -DSIDESTEP_CUDA=ON");
}

}  // namespace

CudaProbe probe_cuda() { return {false, 0, "the program was built without CUDA"}; }

std::unique_ptr<Stream::Impl> make_cuda_stream(Device device, std::string_view name, int) {
  fail_without_cuda("stream '" + std::string(name) + "' on " + to_string(device));
}

std::byte* cuda_allocate(Device device, std::size_t bytes) {
  fail_without_cuda("memory on " + to_string(device) + " (" + std::to_string(bytes) + " bytes)");
}

void cuda_free(Device, std::byte*) noexcept {}

std::byte* pinned_allocate(std::size_t) noexcept { return nullptr; }

void pinned_free(std::byte*) noexcept {}

void cuda_copy(Stream& stream, std::byte*, const std::byte*, std::size_t) {
  fail_without_cuda("copy on stream '" + stream.name() + "'");
}

void cuda_fill_zero(Stream& stream, std::byte*, std::size_t) {
  fail_without_cuda("fill on stream '" + stream.name() + "'");
}

}  // namespace sidestep
