#include "core/device/stream.h"

#include <utility>

namespace sidestep {

Stream Stream::create(Device device, std::string_view name, StreamMode mode, int priority) {
  if (device.kind == DeviceKind::cuda) return Stream(make_cuda_stream(device, name, priority));
  return Stream(make_cpu_stream(name, mode));
}

Stream::Stream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;
Stream::~Stream() = default;

Event Stream::record() { return impl_->record(); }
void Stream::wait(const Event& event) { impl_->wait(event); }
void Stream::host(Task task) { impl_->host(std::move(task)); }
void Stream::synchronize() { impl_->synchronize(); }

Device Stream::device() const { return impl_->device; }
const std::string& Stream::name() const { return impl_->name; }
void* Stream::native() const { return impl_->native(); }

}  // namespace sidestep
