// Rounds in which every rank takes part (gradient family): streams buckets into the all-reduce while
// backward runs, exchanges the round's header, updates bucket by bucket and gates the next forward
// bucket by bucket (decisions 8, 10).
#pragma once

#include <cstdint>
#include <memory>

#include "comm/buckets.h"
#include "comm/comm_thread.h"
#include "comm/engine.h"
#include "core/graph/executor.h"
#include "core/optim/optimizer.h"

namespace sidestep {

class RoundEngine final : public Engine, public ParamGate {
 public:
  struct Options {
    BucketSizes buckets;
    Overlap overlap = Overlap::full;
    double clip_norm = 0;  ///< 0: no clipping; else global-norm clipping (forces a full wait)
    bool micro_batches = false;  ///< a step may have several, so gradients are added up
    Tracer* tracer = nullptr;
  };
  /// Everything passed in outlives the engine. `compute` and `update` may be the same stream.
  RoundEngine(ParamStore& store, const Optimizer& optimizer, CommThread& comm, Stream& compute,
              Stream& update, const Options& options);
  ~RoundEngine() override;

  void begin(const RoundStart& start) override;
  const ParamGate& gate() const override { return *this; }
  void add(const View& loss, const View& weight, const View& correct, std::int64_t samples,
           std::uint64_t index_digest) override;
  GradSink& sink(bool last) override;
  void accumulate() override;
  void cut_short(bool executed) override;
  void end_step() override {}
  void begin_local_step(std::int64_t step, std::int64_t update_number, double lr) override;
  Event finish() override;
  /// Exit::numbers when the reduced gradient was not finite.
  RoundResult result(std::int64_t step) override;

  /// ParamGate: the update of the bucket that holds p (full), or the whole update.
  Event ready(ParamId p) const override;
  Event quiesced() const override;
  std::int64_t inline_wait_ns() const override;
  std::int64_t exchange_ns() const override;
  const BucketPlan& plan() const;
  std::size_t bytes() const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sidestep
