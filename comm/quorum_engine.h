// Rounds that may close without some ranks (quorum family): ranks deposit gradients, the
// coordinator (rank 0) closes rounds, and every rank applies every round in order to a master copy
// of the weights (decision 12). Main claims and computes rounds; the comm thread's agent serves all
// rounds, whatever main and the compute stream do. Only the agent enqueues on the update stream,
// which must not be a direct stream.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/buckets.h"
#include "comm/comm_thread.h"
#include "comm/engine.h"
#include "comm/round_journal.h"
#include "comm/sync_policy.h"
#include "core/graph/executor.h"
#include "core/optim/optimizer.h"

namespace sidestep {

/// What all ranks agree on when a round opens.
struct RoundInfo {
  std::int64_t nominal = 0;  ///< samples of the round's block over all ranks
  double lr = 0;
  std::int64_t update_number = 0;
  bool flush = false;  ///< the round takes all ranks, so that nothing is in flight after it
  bool last = false;   ///< no round opens after it; implies flush
  RoundRule rule;
};

class QuorumEngine final : public Engine, public ParamGate {
 public:
  struct Options {
    BucketSizes buckets;
    double clip_norm = 0;
    bool micro_batches = false;  ///< a round may have several, so gradients are added up
    bool early = true;  ///< a rank has arrived when its last backward begins; else when it ends
    std::int64_t batch = 1;  ///< configured: the nominal divisor
    Tracer* tracer = nullptr;
    /// Called on the comm thread, with the engine's lock held, when `round` opens.
    std::function<RoundInfo(std::int64_t round)> plan = {};
    /// Likewise, before the next round opens: the header of a round is in. The result lacks
    /// grad_norm.
    std::function<void(const RoundResult& result)> closed = {};
    /// On rank 0's comm thread, in order, after each round was applied there.
    std::function<void(const JournalLine& line)> journal = {};
    /// Rounds that are recorded here close, and are worked on, as they were.
    std::vector<JournalLine> replay = {};
    std::function<double()> now = {};  ///< seconds; a steady clock by default
    /// Test hook, on the update stream after each round: the master copy holds its result.
    std::function<void(std::int64_t round, const View& master)> applied = {};
  };
  /// Everything passed in outlives the engine.
  QuorumEngine(ParamStore& store, const Optimizer& optimizer, CommThread& comm, Stream& compute,
               Stream& update, const Options& options);
  ~QuorumEngine() override;

  /// Once weights and slots are in place, on all ranks (collective): round `first` opens.
  void start(std::int64_t first);
  /// Waits until a round is open that this rank may work on, and claims it: the store's values
  /// become the weights after the round before (on the compute stream). 0 when there is none any
  /// more.
  std::int64_t claim();
  /// Of the claimed round.
  const RoundInfo& info() const;
  /// True when the claimed round was closed without this rank, whose work is late already.
  bool missed() const;
  /// The last round whose header is in.
  std::int64_t newest_closed() const;
  /// What the callbacks touch may be read by main under this.
  std::unique_lock<std::mutex> lock() const;

  void begin(const RoundStart& start) override;
  const ParamGate& gate() const override { return *this; }
  void add(const View& loss, const View& weight, const View& correct, std::int64_t samples,
           std::uint64_t index_digest) override;
  GradSink& sink(bool last) override;
  void accumulate() override;
  void cut_short(bool executed) override;
  void end_step() override {}
  void begin_local_step(std::int64_t step, std::int64_t update_number, double lr) override;
  /// Hands the round's gradient over; the event is that of its gradient being final.
  Event finish() override;
  /// Waits until round `step` is applied here; asked for in order, each once. After a flush round
  /// the store's values are the master's and rounds rest until the next claim().
  RoundResult result(std::int64_t step) override;
  /// The compute stream has refreshed the store's values after a flush round's result().
  Event quiesced() const override;

  /// ParamGate: claim() has enqueued all that a pass waits for.
  Event ready(ParamId) const override { return {}; }
  std::int64_t exchange_ns() const override;
  const BucketPlan& buckets() const;
  std::size_t bytes() const override;

  /// This rank's samples. After a flush round produced == applied + written_off.
  struct Counts {
    std::int64_t produced = 0;     ///< computed, by finish()
    std::int64_t applied = 0;      ///< in a round's sum
    std::int64_t carried = 0;      ///< deposited, waiting for a round
    std::int64_t written_off = 0;  ///< computed and thrown away
  };
  Counts counts() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sidestep
