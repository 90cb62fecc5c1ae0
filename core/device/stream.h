// An ordered queue of work on a device. On the CPU a worker thread with a FIFO (threaded) or the
// calling thread itself (direct); on the GPU a CUDA stream. One thread enqueues on a stream at a
// time; events may be waited for by anybody.
//
// Failure: a task that throws poisons its stream: later tasks are skipped, later events fail with
// the same exception, and a stream that waits on a failed event fails too. Event::wait() and
// synchronize() rethrow it. On a GPU kernels behind a failure still run, but no event after them
// succeeds, and earlier events that nobody has seen complete may fail too.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/device/device.h"
#include "core/device/event.h"
#include "core/device/task.h"

namespace sidestep {

enum class StreamMode { threaded, direct };

class Stream {
 public:
  class Impl;  // one per kind of stream; see stream_cpu.cc, cuda_stream.cu

  /// `name` names the worker thread (first 15 characters) and the trace row.
  /// Fails with Exit::device for a CUDA device when there is none.
  static Stream create(Device device, std::string_view name, StreamMode mode = StreamMode::threaded,
                       int priority = 0);
  explicit Stream(std::unique_ptr<Impl> impl);
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;
  /// Finishes what is enqueued (a failure is dropped), then ends the worker.
  ~Stream();

  /// An event that completes after everything enqueued so far.
  Event record();
  /// Work enqueued later starts after the event; the host returns at once (a direct CPU stream
  /// waits here). A failed event fails this stream.
  void wait(const Event& event);
  /// Ordered host work. May throw inside: see above. It must not enqueue on this same stream.
  void host(Task task);
  /// Blocks until all is done; rethrows a failure.
  void synchronize();

  Device device() const;
  const std::string& name() const;
  /// The cudaStream_t of a CUDA stream; null on the CPU.
  void* native() const;

 private:
  std::unique_ptr<Impl> impl_;
};

/// What a kind of stream implements. CPU: run() is called for each task in order.
class Stream::Impl {
 public:
  virtual ~Impl() = default;
  virtual Event record() = 0;
  virtual void wait(const Event& event) = 0;
  virtual void host(Task task) = 0;
  virtual void synchronize() = 0;
  virtual void* native() const = 0;
  Device device;
  std::string name;
};

/// Factories, one per translation unit; the CUDA one is a stub without CUDA (fails with
/// Exit::device).
std::unique_ptr<Stream::Impl> make_cpu_stream(std::string_view name, StreamMode mode);
std::unique_ptr<Stream::Impl> make_cuda_stream(Device device, std::string_view name, int priority);

}  // namespace sidestep
