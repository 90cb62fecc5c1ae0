// How one rank carries out rounds, whatever the family of the policy. A round is what ends in an
// exchange: one step (gradient, quorum), several local steps (model). The main thread calls; work runs
// on the compute and update streams and the comm thread.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "comm/round_header.h"
#include "core/graph/executor.h"

namespace sidestep {

/// How far exchange may overlap with compute. off: after backward; backward: during backward, but
/// the next forward waits for the whole update; full: also during the next forward.
enum class Overlap : std::uint8_t { off, backward, full };

/// What one round came to; the same on every rank but for `entries`' lifetime: they stay until
/// kKept later rounds have begun.
struct RoundResult {
  std::int64_t step = 0;           ///< the last step of the round
  std::int64_t weight = 0;         ///< samples (tokens) whose gradients were applied
  std::int64_t samples = 0;
  std::int64_t correct = 0;
  std::int64_t participants = 0;   ///< ranks with samples in time
  std::int64_t stop_requests = 0;  ///< ranks that asked to stop
  std::uint64_t index_digest = 0;  ///< sum over the ranks, modulo 2^64: which samples took part
  double loss_sum = 0;             ///< over the samples
  std::int64_t flushed = 0;        ///< ranks whose last micro-batch was not foreseen
  bool synced = true;              ///< model family: whether models were exchanged
  std::int64_t bytes = 0;          ///< exchanged by this rank: payload of the round's collectives
  std::optional<double> grad_norm;  ///< of the divided gradient, before clipping; only with clipping
  std::span<const RankEntry> entries;
};

/// What a rank knows when it begins a round.
struct RoundStart {
  std::int64_t step = 0;           ///< first step of the round
  std::int64_t update_number = 0;  ///< counts updates from 1 (AdamW's t)
  double lr = 0;
  std::int64_t nominal = 0;        ///< samples of the round's block over all ranks
  bool stop = false;               ///< this rank's wish to stop after the round
  RankEntry own;                   ///< this rank's times; samples, units, begun, late_* are the engine's
};

class Engine {
 public:
  static constexpr int kKept = 4;  ///< results kept; at most kKept - 2 rounds may be outstanding

  virtual ~Engine() = default;

  virtual void begin(const RoundStart& start) = 0;
  /// What forward waits for before it reads a parameter.
  virtual const ParamGate& gate() const = 0;
  /// After a micro-batch's forward was enqueued: its outputs, and how many samples with which digest.
  virtual void add(const View& loss, const View& weight, const View& correct, std::int64_t samples,
                   std::uint64_t index_digest) = 0;
  /// What the micro-batch's backward reports to. `last`: no other micro-batch of this step follows,
  /// so its gradients are final as they appear; else they are added up. One pass at a time.
  virtual GradSink& sink(bool last) = 0;
  /// After backward was enqueued into sink(false): adds the gradients up.
  virtual void accumulate() = 0;
  /// The step is over though the last sink() was sink(false) (its cap fired unexpectedly), or there
  /// was no micro-batch at all (`executed` false: gradients count as zero).
  virtual void cut_short(bool executed) = 0;
  /// After the last micro-batch of a step: local presets update here. `lr` of the step to come is
  /// given to begin_local_step.
  virtual void end_step() = 0;
  /// Model family: a further local step of the round begins.
  virtual void begin_local_step(std::int64_t step, std::int64_t update_number, double lr) = 0;
  /// Model family with votes: whether the round ends after the step just ended (waits for the vote).
  virtual bool vote_to_end() { return false; }
  /// Enqueues what is left of the round; returns the event of the whole update.
  virtual Event finish() = 0;
  /// The result of the round that ended with `step`: waits for its update. Rethrows its failure.
  virtual RoundResult result(std::int64_t step) = 0;

  /// After this event weights and slots hold the last finished round.
  virtual Event quiesced() const = 0;
  /// Between rounds, after quiesced(): the store's values become those to evaluate and save (easgd: the
  /// centre), until hide() puts the rank's own back. Others have nothing to do.
  virtual void show() {}
  virtual void hide() {}
  /// Nanoseconds the update stream has waited for exchange, where it is the compute stream; else 0.
  virtual std::int64_t inline_wait_ns() const { return 0; }
  /// From this rank's own readiness to the end of the exchange, of the last completed round.
  virtual std::int64_t exchange_ns() const { return 0; }
  virtual std::size_t bytes() const = 0;

  /// Tensors beside weights and slots that a checkpoint keeps, by path under /sync; replicated ones
  /// ("outer_momentum") and those of this rank ("rank"). Flat like the store's values.
  struct Extra {
    const char* name;
    View view;
    bool per_rank;
  };
  virtual std::span<const Extra> extras() { return {}; }
};

}  // namespace sidestep
