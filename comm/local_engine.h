// Rounds of the model family: a rank takes one or more local steps, each with its own mean
// gradient, then all exchange models (local SGD, BMUF, SlowMo, DiLoCo, elastic averaging; with
// votes SelSync). The main thread calls.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "comm/buckets.h"
#include "comm/comm_thread.h"
#include "comm/engine.h"
#include "comm/selsync_vote.h"
#include "comm/sync_policy.h"
#include "core/graph/executor.h"
#include "core/optim/optimizer.h"

namespace sidestep {

class LocalEngine final : public Engine, public ParamGate {
 public:
  struct Options {
    ModelRule rule;
    BucketSizes buckets;
    double clip_norm = 0;        ///< 0: none; else each local step clips its own gradient's norm
    bool micro_batches = false;  ///< a local step may have several, so gradients are added up
    SelSyncVote::Config vote;    ///< with rule.vote; it sees each step's mean gradient, not clipped
    std::int64_t vote_lag = 0;   ///< steps between a vote and the step that obeys it
    Tracer* tracer = nullptr;
  };
  /// Everything passed in outlives the engine. `compute` and `update` may be the same stream.
  LocalEngine(ParamStore& store, const Optimizer& optimizer, CommThread& comm, Stream& compute,
              Stream& update, const Options& options);
  ~LocalEngine() override;

  void begin(const RoundStart& start) override;
  const ParamGate& gate() const override { return *this; }
  void add(const View& loss, const View& weight, const View& correct, std::int64_t samples,
           std::uint64_t index_digest) override;
  GradSink& sink(bool last) override;
  void accumulate() override;
  void cut_short(bool executed) override;
  /// The own update. A step without samples leaves weights and slots as they are. A gradient that
  /// is not finite fails the update stream with Exit::numbers naming step and rank.
  void end_step() override;
  void begin_local_step(std::int64_t step, std::int64_t update_number, double lr) override;
  /// True too when the round has had as many steps as the rule allows, and while no vote old enough
  /// has been cast.
  bool vote_to_end() override;
  Event finish() override;
  RoundResult result(std::int64_t step) override;

  /// ParamGate: the last local update, or after an exchange the bucket that holds p.
  Event ready(ParamId p) const override;
  Event quiesced() const override;
  /// Elastic: exchanges weights and centre; both wait. To resume, load the centre into the store's
  /// values, call show(), load what is kept of extras(), call hide().
  void show() override;
  void hide() override;
  std::int64_t inline_wait_ns() const override;
  std::int64_t exchange_ns() const override;
  std::size_t bytes() const override;
  /// "outer_momentum"; by rank: "weights" (elastic, while shown), "slot:<name>" (where they
  /// differ).
  std::span<const Extra> extras() override;
  /// What this rank's later votes depend on, as one line; between rounds, after quiesced(). Loaded
  /// before the first round.
  std::string save_votes() const;
  void load_votes(const std::string& state);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sidestep
