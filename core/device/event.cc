#include "core/device/event.h"

#include "core/device/spin.h"

namespace sidestep {

bool Timeline::done(std::uint64_t value) const {
  const std::uint64_t state = state_.load();
  return (state & kFailed) != 0 || state >= value;
}

void Timeline::wait(std::uint64_t value) const {
  const auto over = [this, value] { return Timeline::done(value); };
  if (!spin_briefly(over)) {
    std::unique_lock lock(mutex_);
    waiters_.fetch_add(1);
    changed_.wait(lock, over);
    waiters_.fetch_sub(1);
  }
  rethrow_failure(value);
}

bool Timeline::wait_on_gpu(void* /*native_stream*/, std::uint64_t /*value*/,
                           const std::shared_ptr<Timeline>& /*follower*/) const {
  return false;
}

bool Timeline::advance(std::uint64_t value) {
  std::uint64_t state = state_.load(std::memory_order_relaxed);
  do {
    if ((state & kFailed) != 0) return false;
    if (state >= value) return true;
  } while (!state_.compare_exchange_weak(state, value));
  wake_waiters();
  return true;
}

void Timeline::fail(std::exception_ptr cause) {
  {
    const std::lock_guard lock(mutex_);
    if (failed()) return;
    failure_ = std::move(cause);
    state_.fetch_or(kFailed);
  }
  changed_.notify_all();
}

std::exception_ptr Timeline::failure() const { return failed() ? failure_ : nullptr; }

void Timeline::rethrow_failure(std::uint64_t value) const {
  if (failed() && reached() < value) std::rethrow_exception(failure_);
}

void Timeline::wake_waiters() {
  if (waiters_.load() == 0) return;
  // A waiter that has read an old state holds the mutex until it sleeps; then notify reaches it.
  { const std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

}  // namespace sidestep
