// The one thread that calls HDF5: saves and HDF5 reads queue here, reads first. Any thread submits.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>

namespace sidestep {

class StorageThread {
 public:
  StorageThread();
  /// Finishes all queued jobs.
  ~StorageThread();
  /// The future rethrows what the job throws. Reads overtake queued saves (not a running one).
  std::future<void> read(std::function<void()> job);
  std::future<void> save(std::function<void()> job);
  /// Runs a read and waits for it; called on the storage thread itself it runs at once.
  void read_now(const std::function<void()>& job);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sidestep
