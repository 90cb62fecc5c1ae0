// The thread that makes every communication call (decision 9): a FIFO of collectives, each started
// when its event is done, tested with back-off, and reported on one timeline in FIFO order.
// Main thread enqueues; events may be waited for by anybody.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/communicator.h"
#include "core/base/trace.h"
#include "core/device/event.h"

namespace sidestep {

class CommThread {
 public:
  struct Options {
    int max_in_flight = 8;     ///< collectives started and not finished
    Tracer* tracer = nullptr;  ///< spans from start to completion, named by the caller
    /// A collective that takes longer is reported as a warning, again after twice the time.
    std::int64_t late_ns = 30'000'000'000;
    int poll_us = 50;          ///< longest sleep between tests while something is in flight
  };
  CommThread(std::unique_ptr<Communicator> comm, const Options& options);
  /// Finishes what is queued; drops it after a failure, and while an exception unwinds the stack.
  ~CommThread();

  int rank() const;
  int size() const;

  /// Enqueue; the returned event completes when the result is in `inout`, and fails if `after`
  /// failed or the exchange did. One rank: completes with `after`, nothing is sent. `name` must
  /// outlive the trace. Called by one thread (main); allocates nothing after warm-up on the caller.
  Event all_reduce(View inout, Reduce op, const Event& after, const char* name, std::int64_t step);
  Event broadcast(View inout, int root, const Event& after, const char* name, std::int64_t step);
  Event all_gather(View mine, View all, const Event& after, const char* name, std::int64_t step);

  /// Ends the thread at once: everything not finished fails. For the way out after an error. No
  /// call but the destructor may follow.
  void give_up();
  /// Finishes what is queued, ends the thread and hands the communicator back. No call but the
  /// destructor may follow.
  std::unique_ptr<Communicator> stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  int exceptions_at_start_;
};

}  // namespace sidestep
