// A FIFO of tasks. No locking: the owner guards it.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "core/device/task.h"

namespace sidestep {

/// Tasks in order, in one ring that doubles when it is full: a steady load allocates nothing.
class TaskRing {
 public:
  bool empty() const { return size_ == 0; }

  void push(Task&& task) {
    if (size_ == slots_.size()) grow();
    slots_[(head_ + size_) % slots_.size()] = std::move(task);
    ++size_;
  }

  Task pop() {
    Task task = std::move(slots_[head_]);
    head_ = (head_ + 1) % slots_.size();
    --size_;
    return task;
  }

 private:
  static constexpr std::size_t kFirstCapacity = 256;

  void grow() {
    std::vector<Task> larger(2 * slots_.size());
    for (std::size_t i = 0; i < size_; ++i)
      larger[i] = std::move(slots_[(head_ + i) % slots_.size()]);
    slots_ = std::move(larger);
    head_ = 0;
  }

  std::vector<Task> slots_ = std::vector<Task>(kFirstCapacity);
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

}  // namespace sidestep
