// The thread that makes every communication call (decision 9): a FIFO of collectives, each started
// when its event is done, tested with back-off, and reported on one timeline in FIFO order. Beside
// it, agents exchange control messages on a communicator of their own.
// Main thread and agents enqueue; events may be waited for by anybody.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "comm/comm_agent.h"
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
    int poll_us = 50;      ///< longest sleep between tests while something is in flight
    bool control = false;  ///< make a control communicator, so that agents can be added
    /// Called on the comm thread before a collective of so many bytes starts (a delay injector).
    std::function<void(std::size_t bytes, std::int64_t step)> before_start = {};
  };
  CommThread(std::unique_ptr<Communicator> comm, const Options& options);
  /// Finishes what is queued; drops it after a failure, and while an exception unwinds the stack.
  ~CommThread();

  int rank() const;
  int size() const;

  /// From now on the agent is polled and offered messages, in the order in which agents were added,
  /// until remove_agent() has returned; it is polled once more before it goes. Needs
  /// `Options::control`. A message that nobody takes is an error, but for heartbeats: an agent that
  /// relies on messages is added before those that do not, since none are received before the
  /// first. Any thread but the comm thread. A throw of the agent's fails everything, as a failed
  /// exchange does; after any failure agents are left alone.
  void add_agent(CommAgent& agent);
  void remove_agent(CommAgent& agent);
  /// An agent has something to do: ends the comm thread's sleep.
  void wake();

  /// Enqueue; the returned event completes when the result is in `inout`, and fails if `after`
  /// failed or the exchange did. One rank: completes with `after`, nothing is sent. `name` must
  /// outlive the trace. Called by main or by an agent (ranks must agree on the order); allocates
  /// nothing after warm-up on the caller.
  Event all_reduce(View inout, Reduce op, const Event& after, const char* name, std::int64_t step);
  Event broadcast(View inout, int root, const Event& after, const char* name, std::int64_t step);
  Event all_gather(View mine, View all, const Event& after, const char* name, std::int64_t step);

  /// Ends the thread at once: everything not finished fails. For the way out after an error. No
  /// call but the destructor may follow.
  void give_up();
  /// Finishes what is queued, ends the thread and hands the communicator back (the control
  /// communicator goes with this object). No call but remove_agent() and the destructor may follow.
  std::unique_ptr<Communicator> stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  int exceptions_at_start_;
};

}  // namespace sidestep
