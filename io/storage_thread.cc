#include "io/storage_thread.h"

#include <pthread.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace sidestep {

struct StorageThread::Impl {
  using Job = std::function<void()>;

  std::mutex mutex;
  std::condition_variable changed;
  // First in, first out. Vectors, because the queues are short and a vector that has grown does not
  // allocate again.
  std::vector<Job> reads, saves;
  bool stop = false;
  std::thread thread;

  void enqueue(std::vector<Job>& queue, Job job) {
    {
      const std::lock_guard lock(mutex);
      queue.push_back(std::move(job));
    }
    changed.notify_all();
  }

  std::future<void> submit(std::vector<Job>& queue, Job job) {
    auto task = std::make_shared<std::packaged_task<void()>>(std::move(job));
    std::future<void> result = task->get_future();
    enqueue(queue, [task = std::move(task)] { (*task)(); });
    return result;
  }

  void work() {
    pthread_setname_np(pthread_self(), "storage");
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return stop || !reads.empty() || !saves.empty(); });
      std::vector<Job>& queue = reads.empty() ? saves : reads;
      if (queue.empty()) return;  // stopped, and everything is done
      Job job = std::move(queue.front());
      queue.erase(queue.begin());
      lock.unlock();
      job();
      job = nullptr;  // what it holds is destroyed before the lock is taken again
      lock.lock();
    }
  }
};

StorageThread::StorageThread() : impl_(std::make_unique<Impl>()) {
  impl_->thread = std::thread([impl = impl_.get()] { impl->work(); });
}

StorageThread::~StorageThread() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->changed.notify_all();
  impl_->thread.join();
}

std::future<void> StorageThread::read(std::function<void()> job) {
  return impl_->submit(impl_->reads, std::move(job));
}

std::future<void> StorageThread::save(std::function<void()> job) {
  return impl_->submit(impl_->saves, std::move(job));
}

void StorageThread::read_now(const std::function<void()>& job) {
  if (std::this_thread::get_id() == impl_->thread.get_id()) {
    job();
    return;
  }
  // Everything a waiting caller needs lies on its stack and is captured as one reference, which a
  // std::function holds without allocating: loader threads come here for every batch.
  struct Call {
    Impl& impl;
    const std::function<void()>& job;
    std::exception_ptr failure;
    bool done = false;
  } call{*impl_, job, nullptr};
  impl_->enqueue(impl_->reads, [&call] {
    std::exception_ptr failure;
    try {
      call.job();
    } catch (...) {
      failure = std::current_exception();
    }
    Impl& impl = call.impl;
    {
      const std::lock_guard lock(impl.mutex);
      call.failure = std::move(failure);
      call.done = true;
    }  // from here on the caller may have left and `call` is gone
    impl.changed.notify_all();
  });
  {
    std::unique_lock lock(impl_->mutex);
    impl_->changed.wait(lock, [&call] { return call.done; });
  }
  if (call.failure) std::rethrow_exception(call.failure);
}

}  // namespace sidestep
