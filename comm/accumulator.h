// Adds up the gradients of a step's micro-batches in their order, ((g0 + g1) + g2) ..., so that the
// sum has the same bits whether or not the last micro-batch was foreseen. Main thread; the work
// runs on the compute stream.
#pragma once

#include <cstddef>

#include "core/device/buffer.h"
#include "core/device/stream.h"
#include "core/graph/executor.h"

namespace sidestep {

/// For a backward pass whose reports nobody needs.
struct NoSink final : GradSink {
  void grad_ready(ParamId, const Event&) override {}
  void last_read(ParamId, const Event&) override {}
};

class GradAccumulator {
 public:
  /// Allocates the flat sum. Both outlive the accumulator; `compute` is where backward runs.
  GradAccumulator(ParamStore& store, Stream& compute);

  /// A step begins: the sum is empty.
  void begin() { sink_.begun = false; }
  /// Enqueues sum += the store's gradients, after a micro-batch's backward.
  void add(Stream& stream);
  /// What the last micro-batch's backward reports to: each gradient gets the sum added before it is
  /// passed on to `next`. One at a time.
  GradSink& last_sink(GradSink& next);
  /// Enqueues gradients = sum, where the last micro-batch was not foreseen. Nothing if the sum is
  /// empty.
  void flush(Stream& stream);

  std::size_t bytes() const { return memory_.size(); }

 private:
  struct AddingSink final : GradSink {
    AddingSink(ParamStore& param_store, Stream& compute_stream, View flat_sum)
        : store(param_store), compute(compute_stream), sum(flat_sum) {}
    void grad_ready(ParamId p, const Event& event) override;
    void last_read(ParamId p, const Event& event) override;
    ParamStore& store;
    Stream& compute;
    View sum;
    GradSink* next = nullptr;
    bool begun = false;  ///< the sum holds a micro-batch
  };

  Buffer memory_;
  AddingSink sink_;
};

}  // namespace sidestep
