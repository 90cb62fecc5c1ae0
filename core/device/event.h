// Completion. A Timeline counts finished work of one producer (a stream, the comm thread); an Event
// is a point on a timeline. Copying and waiting allocate nothing. Any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

namespace sidestep {

/// A monotone counter with waiters and a sticky failure. The producer calls advance() and fail();
/// anybody may wait. After fail() every point beyond the last one reached is failed.
class Timeline {
 public:
  Timeline() = default;
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;
  virtual ~Timeline() = default;

  /// True when `value` is reached or can no longer be reached (failed).
  virtual bool done(std::uint64_t value) const;
  /// Blocks until done; rethrows the stored failure if `value` was never reached.
  virtual void wait(std::uint64_t value) const;
  /// Makes later work of a cudaStream_t start after `value` without blocking the host, and passes a
  /// failure on to that stream's timeline `follower`. False when this timeline does not belong to a
  /// GPU: the caller has to wait in another way.
  virtual bool wait_on_gpu(void* native_stream, std::uint64_t value,
                           const std::shared_ptr<Timeline>& follower) const;

  /// Marks `value` reached; values only grow. Returns false after a failure. Costs one atomic
  /// exchange; the mutex is taken only when somebody waits.
  bool advance(std::uint64_t value);
  /// Stores the first failure and wakes all waiters; later ones are dropped.
  virtual void fail(std::exception_ptr cause);
  /// The stored failure, null if there is none.
  std::exception_ptr failure() const;
  bool failed() const { return (state_.load(std::memory_order_acquire) & kFailed) != 0; }
  std::uint64_t reached() const { return state_.load(std::memory_order_acquire) & ~kFailed; }

 protected:
  /// Rethrows the failure if there is one and `value` was not reached before it.
  void rethrow_failure(std::uint64_t value) const;

 private:
  static constexpr std::uint64_t kFailed = std::uint64_t{1} << 63;

  void wake_waiters();

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  /// Threads that are about to block or blocked. advance() writes state_ and then reads this, a
  /// waiter writes this and then reads state_, all sequentially consistent: one sees the other.
  mutable std::atomic<int> waiters_{0};
  /// The value reached, and kFailed: one word, so that nothing is reached after a failure.
  std::atomic<std::uint64_t> state_{0};
  std::exception_ptr failure_;  ///< written once, before kFailed is set
};

class Event {
 public:
  /// A default event is already done.
  Event() = default;
  Event(std::shared_ptr<Timeline> timeline, std::uint64_t value)
      : timeline_(std::move(timeline)), value_(value) {}

  bool done() const { return !timeline_ || timeline_->done(value_); }
  /// Blocks the calling thread; rethrows the failure of the work if it failed.
  void wait() const {
    if (timeline_) timeline_->wait(value_);
  }
  /// True when a stream whose own events lie on `own` need not wait: the event is known to have
  /// succeeded, or the stream's order covers it.
  bool covered_by(const Timeline* own) const {
    return !timeline_ || timeline_.get() == own || timeline_->reached() >= value_;
  }
  const Timeline* timeline() const { return timeline_.get(); }
  std::uint64_t value() const { return value_; }

 private:
  std::shared_ptr<Timeline> timeline_;
  std::uint64_t value_ = 0;
};

}  // namespace sidestep
