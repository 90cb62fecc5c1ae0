// Carries out rounds: streams buckets into the all-reduce while backward runs, exchanges the
// round's header, updates bucket by bucket and gates the next forward bucket by bucket (decisions
// 8, 10). The main thread calls it; work runs on the comm thread and the update stream.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/buckets.h"
#include "comm/comm_thread.h"
#include "core/graph/executor.h"
#include "core/optim/optimizer.h"

namespace sidestep {

/// How far exchange may overlap with compute. off: after backward; backward: during backward, but
/// the next forward waits for the whole update; full: also during the next forward.
enum class Overlap : std::uint8_t { off, backward, full };

/// What one round came to; the same on every rank.
struct RoundResult {
  std::int64_t step = 0;
  std::int64_t weight = 0;  ///< divisor: samples that took part
  std::int64_t samples = 0;
  std::int64_t correct = 0;
  std::int64_t participants = 0;   ///< ranks with samples
  std::int64_t stop_requests = 0;  ///< ranks that asked to stop
  std::uint64_t index_digest = 0;  ///< sum over the ranks, modulo 2^64: which samples took part
  double loss_sum = 0;             ///< over the samples
  std::optional<double>
      grad_norm;  ///< of the divided gradient, before clipping; only with clipping
};

class RoundEngine final : public ParamGate {
 public:
  struct Options {
    BucketSizes buckets;
    Overlap overlap = Overlap::full;
    double clip_norm = 0;  ///< 0: no clipping; else global-norm clipping (forces a full wait)
    Tracer* tracer = nullptr;
  };
  /// Everything passed in outlives the engine. `compute` and `update` may be the same stream.
  RoundEngine(ParamStore& store, const Optimizer& optimizer, CommThread& comm, Stream& compute,
              Stream& update, const Options& options);
  ~RoundEngine() override;

  /// Begins round `step`; `update_number` counts updates from 1 (AdamW's t).
  void begin(std::int64_t step, std::int64_t update_number, double lr);
  /// After forward was enqueued: this rank's share of the header, read when `forward_done`
  /// completes. Null views for a rank without samples. `samples` is this rank's share.
  void contribute(const View* loss, const View* weight, const View* correct, std::int64_t samples,
                  std::uint64_t index_digest = 0, bool stop = false);
  /// What backward reports to; valid between begin() and finish().
  GradSink& sink();
  /// Enqueues what is left of the round; returns the event of the whole update.
  Event finish();
  /// The result of a round, once its update is done: waits for it. Keeps the last kKept rounds.
  /// Rethrows a failure of the round; Exit::numbers when the reduced gradient was not finite.
  static constexpr int kKept = 4;
  RoundResult result(std::int64_t step);

  /// ParamGate: the update of the bucket that holds p (full), or the whole update.
  Event ready(ParamId p) const override;
  /// After this event weights and slots hold the last finished round.
  Event quiesced() const;
  /// Nanoseconds the update stream has waited for exchange, where it is the compute stream; else 0.
  std::int64_t inline_wait_ns() const;
  const BucketPlan& plan() const;
  std::size_t bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sidestep
