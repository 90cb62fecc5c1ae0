// Streams of the CPU: a worker thread with a FIFO, or the calling thread.
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "core/device/spin.h"
#include "core/device/stream.h"
#include "core/device/task_ring.h"

namespace sidestep {
namespace {

/// Runs and destroys task number `number` of a stream, unless an earlier one failed; what it
/// captured is gone before anybody learns that it is over.
void run_task(Timeline& timeline, Task& task, std::uint64_t number) {
  std::exception_ptr failure;
  if (!timeline.failed()) {
    try {
      task();
    } catch (...) {
      failure = std::current_exception();
    }
  }
  task = Task();
  if (failure) {
    timeline.fail(std::move(failure));
  } else {
    timeline.advance(number);
  }
}

class ThreadedCpuStream final : public Stream::Impl {
 public:
  explicit ThreadedCpuStream(std::string_view stream_name) {
    name = stream_name;
    worker_ = std::thread([this] { work(); });
  }

  ~ThreadedCpuStream() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    ready_.notify_one();
    worker_.join();
  }

  Event record() override { return {timeline_, enqueued_.load(std::memory_order_relaxed)}; }

  void wait(const Event& event) override {
    if (event.covered_by(timeline_.get())) return;
    host([event] { event.wait(); });
  }

  void host(Task task) override {
    bool sleeping = false;
    {
      const std::lock_guard lock(mutex_);
      tasks_.push(std::move(task));
      enqueued_.fetch_add(1, std::memory_order_release);
      sleeping = sleeping_;
    }
    if (sleeping) ready_.notify_one();
  }

  void synchronize() override { timeline_->wait(enqueued_.load(std::memory_order_relaxed)); }
  void* native() const override { return nullptr; }

 private:
  void work() {
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
    Task task;
    for (std::uint64_t number = 1; take(number, task); ++number) run_task(*timeline_, task, number);
  }

  /// Waits for task `number`; false when the stream ends instead.
  bool take(std::uint64_t number, Task& task) {
    spin_briefly([&] { return enqueued_.load(std::memory_order_acquire) >= number; });
    std::unique_lock lock(mutex_);
    sleeping_ = true;
    ready_.wait(lock, [this] { return !tasks_.empty() || stop_; });
    sleeping_ = false;
    if (tasks_.empty()) return false;
    task = tasks_.pop();
    return true;
  }

  std::shared_ptr<Timeline> timeline_ = std::make_shared<Timeline>();
  std::mutex mutex_;
  std::condition_variable ready_;
  TaskRing tasks_;
  bool sleeping_ = false;
  bool stop_ = false;
  std::atomic<std::uint64_t> enqueued_{0};  ///< written under mutex_
  std::thread worker_;
};

class DirectCpuStream final : public Stream::Impl {
 public:
  explicit DirectCpuStream(std::string_view stream_name) { name = stream_name; }

  Event record() override { return {timeline_, enqueued_}; }

  void wait(const Event& event) override {
    if (event.covered_by(timeline_.get())) return;
    host([event] { event.wait(); });
  }

  void host(Task task) override { run_task(*timeline_, task, ++enqueued_); }
  void synchronize() override { timeline_->wait(enqueued_); }
  void* native() const override { return nullptr; }

 private:
  std::shared_ptr<Timeline> timeline_ = std::make_shared<Timeline>();
  std::uint64_t enqueued_ = 0;
};

}  // namespace

std::unique_ptr<Stream::Impl> make_cpu_stream(std::string_view name, StreamMode mode) {
  if (mode == StreamMode::direct) return std::make_unique<DirectCpuStream>(name);
  return std::make_unique<ThreadedCpuStream>(name);
}

}  // namespace sidestep
