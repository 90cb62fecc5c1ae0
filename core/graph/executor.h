// Runs a model's graph for every batch size that can occur, over one slab and one ParamStore.
// The main thread enqueues; nothing is allocated inside a step.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/trace.h"
#include "core/device/buffer.h"
#include "core/device/stream.h"
#include "core/graph/autodiff.h"
#include "core/graph/graph.h"
#include "core/graph/memory_plan.h"
#include "core/graph/param_store.h"

namespace sidestep {

/// Called by the executor while it enqueues backward, on the enqueueing thread.
struct GradSink {
  virtual ~GradSink() = default;
  /// Gradient p is final once `event` completes. Once per parameter per step, in ready order.
  virtual void grad_ready(ParamId p, const Event& event) = 0;
  /// No node of this step reads parameter p after `event`. Once per parameter per step, before or
  /// after its grad_ready.
  virtual void last_read(ParamId p, const Event& event) = 0;
};

/// Tells forward what to wait for before it first reads a parameter.
struct ParamGate {
  virtual ~ParamGate() = default;
  virtual Event ready(ParamId p) const = 0;
};

/// Values a model's builder returns; all are computed values of the graph.
struct ModelOutputs {
  ValueId loss = kNone;     ///< float64 [1]: sum over the samples
  ValueId weight = kNone;   ///< int64 [1]: samples (tokens) that the sum covers
  ValueId correct = kNone;  ///< int64 [1]: correct predictions
  ValueId logits = kNone;   ///< float32 [batch, classes]
};

/// Builds the model for one batch size; inputs are named "x" and "y". Pure.
using ModelBuilder = std::function<ModelOutputs(GraphBuilder&, std::int64_t batch)>;

class Executor {
 public:
  struct Options {
    Device device;
    bool training = true;                 ///< with backward
    std::vector<std::int64_t> batches;    ///< every batch size that can occur, > 0
    Tracer* tracer = nullptr;             ///< may be null; spans named after nodes
  };
  /// Builds, differentiates and plans every batch size. Creates the ParamStore from the largest.
  Executor(const ModelBuilder& build, const Options& options);
  /// A second executor (evaluation) over the same parameters.
  Executor(const ModelBuilder& build, const Options& options, std::shared_ptr<ParamStore> params);
  ~Executor();

  ParamStore& params() const { return *params_; }
  std::shared_ptr<ParamStore> shared_params() const { return params_; }
  const Backward& backward_info() const;
  /// Input tensor "x" or "y" of a batch size, to be filled by a copy on the compute stream.
  View input(std::int64_t batch, std::string_view name) const;
  /// Output views of a batch size.
  View loss(std::int64_t batch) const;
  View weight(std::int64_t batch) const;
  View correct(std::int64_t batch) const;
  View logits(std::int64_t batch) const;

  /// Enqueues forward. `gate` may be null (nothing to wait for).
  void forward(Stream& stream, std::int64_t batch, const ParamGate* gate, std::int64_t step);
  /// Enqueues backward after forward of the same batch size and reports to the sink.
  void backward(Stream& stream, std::int64_t batch, GradSink& sink, std::int64_t step);

  /// Nanoseconds that forward passes have waited for weights so far: exposed exchange and update.
  std::int64_t gate_wait_ns() const { return gate_wait_ns_.load(); }
  /// Planned bytes: slab, inputs, parameters with gradients.
  std::size_t slab_bytes() const { return slab_.size(); }
  std::size_t input_bytes() const { return inputs_.size(); }
  /// Test hook: called (enqueued as host work) before each node runs; must be set before a step.
  void set_node_hook(std::function<void(const Node&)> hook) { node_hook_ = std::move(hook); }

 private:
  struct Program;
  const Program& program(std::int64_t batch) const;
  void wait_for(Stream& stream, const Event& event);
  void run_node(Stream& stream, const Program& program, NodeId id, std::int64_t step);

  Options options_;
  std::shared_ptr<ParamStore> params_;
  Buffer slab_;
  Buffer inputs_;
  std::map<std::int64_t, std::unique_ptr<Program>> programs_;
  std::function<void(const Node&)> node_hook_;
  // Written and read by tasks of the compute stream, in order.
  std::int64_t span_begin_ = 0;
  std::int64_t gate_begin_ = 0;
  std::atomic<std::int64_t> gate_wait_ns_{0};
};

}  // namespace sidestep
