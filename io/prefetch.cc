#include "io/prefetch.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "io/sampler.h"

namespace sidestep {
namespace {

/// Slot numbers, first in first out, in storage that never grows.
class SlotQueue {
 public:
  explicit SlotQueue(std::size_t capacity) : slots_(capacity) {}
  bool empty() const { return used_ == 0; }
  void push(int slot) {
    check(used_ < slots_.size(), "a batch was released twice");
    slots_[(first_ + used_++) % slots_.size()] = slot;
  }
  int pop() {
    const int slot = slots_[first_];
    first_ = (first_ + 1) % slots_.size();
    --used_;
    return slot;
  }

 private:
  std::vector<int> slots_;
  std::size_t first_ = 0, used_ = 0;
};

struct Slot {
  Buffer x, y;
  LoadRequest request;
  std::uint64_t digest = 0;
  std::int64_t begun_ns = 0;  ///< when its loading began
  Event used;
};

}  // namespace

struct Prefetcher::Impl {
  Dataset& dataset;
  const Shape sample;
  const std::int64_t max_batch;
  const std::function<bool(LoadRequest&)> next;
  Tracer* const tracer;

  std::vector<Slot> slots;
  std::mutex mutex;
  std::condition_variable changed;
  SlotQueue free, ready;
  bool stop = false;
  bool finished = false;
  std::exception_ptr failure;
  std::thread thread;

  Impl(Dataset& data, std::int64_t most, int depth, std::function<bool(LoadRequest&)> source,
       Tracer* trace)
      : dataset(data),
        sample(data.sample_shape()),
        max_batch(most),
        next(std::move(source)),
        tracer(trace),
        slots(static_cast<std::size_t>(depth)),
        free(slots.size()),
        ready(slots.size()) {
    const auto rows = static_cast<std::size_t>(max_batch);
    const std::size_t row_bytes = static_cast<std::size_t>(sample.numel()) * sizeof(float);
    for (Slot& slot : slots) {
      slot.x = Buffer(Device{}, rows * row_bytes, Buffer::Kind::pinned);
      slot.y = Buffer(Device{}, rows * sizeof(std::int32_t), Buffer::Kind::pinned);
      slot.request.ids.reserve(rows);
      free.push(static_cast<int>(&slot - slots.data()));
    }
  }

  View x_of(const Slot& slot) const {
    const auto count = static_cast<std::int64_t>(slot.request.ids.size());
    return slot.x.view(0, Shape{count, sample[0], sample[1], sample[2]}, DType::f32);
  }
  View y_of(const Slot& slot) const {
    return slot.y.view(0, Shape{static_cast<std::int64_t>(slot.request.ids.size())}, DType::i32);
  }

  /// The next slot whose last copy to the device is over; -1 when the prefetcher ends.
  int wait_for_slot() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return stop || !free.empty(); });
    if (stop) return -1;
    const int number = free.pop();
    Slot& slot = slots[static_cast<std::size_t>(number)];
    // Polled, so that the end of the program does not hang on work that never completes. Whether
    // that work failed is the business of those who enqueued it. A long wait is polled less often.
    std::chrono::microseconds pause{100};
    while (!slot.used.done() && !stop) {
      changed.wait_for(lock, pause);
      pause = std::min(pause + pause / 8, std::chrono::microseconds(1000));
    }
    slot.used = Event();
    slot.begun_ns = now_ns();
    return stop ? -1 : number;
  }

  /// False when there is nothing left to load.
  bool fill(Slot& slot) {
    slot.request.ids.clear();
    if (!next(slot.request)) return false;
    const auto& ids = slot.request.ids;
    check(static_cast<std::int64_t>(ids.size()) <= max_batch, "a batch is larger than its slot");
    const std::int64_t begin = now_ns();
    dataset.read(ids, {x_of(slot).as<float>(), y_of(slot).as<std::int32_t>()});
    slot.digest = index_digest(ids, slot.request.epoch);
    if (tracer != nullptr)
      tracer->add({"load batch", begin, now_ns(), slot.request.step, TraceRow::input});
    return true;
  }

  void load() {
    for (;;) {
      const int number = wait_for_slot();
      if (number < 0) return;
      const bool filled = fill(slots[static_cast<std::size_t>(number)]);
      {
        const std::lock_guard lock(mutex);
        if (filled) ready.push(number);
        finished = !filled;
      }
      changed.notify_all();
      if (!filled) return;
    }
  }

  void run() {
    pthread_setname_np(pthread_self(), "loader");
    try {
      load();
    } catch (...) {
      {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
      }
      changed.notify_all();
    }
  }
};

Prefetcher::Prefetcher(Dataset& dataset, std::int64_t max_batch, int depth,
                       std::function<bool(LoadRequest&)> next, Tracer* tracer) {
  check(max_batch >= 0 && depth >= 1, "a prefetcher needs at least one slot");
  impl_ = std::make_unique<Impl>(dataset, max_batch, depth, std::move(next), tracer);
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->changed.notify_all();
  impl_->thread.join();
}

LoadedBatch Prefetcher::take(std::int64_t& waited_ns) {
  Impl& impl = *impl_;
  std::unique_lock lock(impl.mutex);
  const auto over = [&impl] { return impl.failure != nullptr || impl.finished; };
  const bool waits = impl.ready.empty() && !over();
  const std::int64_t begin = waits ? now_ns() : 0;
  if (waits) impl.changed.wait(lock, [&] { return !impl.ready.empty() || over(); });
  if (impl.ready.empty()) {  // what was loaded before a failure is served first
    if (impl.failure) std::rethrow_exception(impl.failure);
    check(false, "a batch was taken after the last one");
  }
  const int number = impl.ready.pop();
  const Slot& slot = impl.slots[static_cast<std::size_t>(number)];
  // As long as the device used all slots, it was not the loader that was waited for.
  if (waits) waited_ns += now_ns() - std::max(begin, slot.begun_ns);
  return {slot.request.step, static_cast<std::int64_t>(slot.request.ids.size()),
          slot.digest,       impl.x_of(slot),
          impl.y_of(slot),   slot.request.ids,
          number};
}

void Prefetcher::release(int slot, Event used) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->slots.at(static_cast<std::size_t>(slot)).used = std::move(used);
    impl_->free.push(slot);
  }
  impl_->changed.notify_all();
}

}  // namespace sidestep
