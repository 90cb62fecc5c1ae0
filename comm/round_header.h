// What all ranks add up in each round beside gradients or weights: one small int64 vector of shared
// counters and one entry a rank, and the loss. Owned by an engine; the main thread begins a round and
// launches its exchange, the compute stream fills in what the forward passes counted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/comm_thread.h"
#include "core/device/buffer.h"
#include "core/device/stream.h"

namespace sidestep {

/// Counters that are summed over the ranks.
struct RoundHeader {
  std::int64_t weight = 0;         ///< samples (tokens) whose gradients are in the sum
  std::int64_t samples = 0;        ///< samples of this round that were computed in time
  std::int64_t correct = 0;
  std::int64_t participants = 0;   ///< ranks with samples
  std::int64_t stop_requests = 0;
  std::int64_t index_digest = 0;   ///< modulo 2^64
  std::int64_t flushed = 0;        ///< ranks whose time cap fired unexpectedly: nothing streamed
};
inline constexpr std::size_t kHeaderFields = 7;
static_assert(sizeof(RoundHeader) == kHeaderFields * sizeof(std::int64_t));

/// One rank's own numbers. Times are of the steps that this rank has finished since it launched its
/// last header (usually one; none at first), so that telling them never waits for anything.
struct RankEntry {
  std::int64_t samples = 0;      ///< applied in this round, of the rank's range in it
  std::int64_t units = 0;        ///< micro-batches or local steps behind `samples`
  std::int64_t begun = 0;        ///< 1 if the rank had begun its range of this round
  std::int64_t late_round = 0;   ///< round whose late work is in this sum (or written off); else 0
  std::int64_t late_samples = 0;
  std::int64_t written_off = 0;  ///< 1: `late_samples` were computed and thrown away
  std::int64_t compute_ns = 0;   ///< compute thread busy, without waits
  std::int64_t compute_units = 0;  ///< micro-batches behind compute_ns
  std::int64_t input_ns = 0;     ///< waiting for the loader
  std::int64_t exchange_ns = 0;  ///< from this rank's own readiness to the end of the exchange
  std::int64_t exposed_ns = 0;   ///< of it, what compute has waited for
  std::int64_t save_ns = 0;      ///< training stood still for a checkpoint
};
inline constexpr std::size_t kEntryFields = 12;
static_assert(sizeof(RankEntry) == kEntryFields * sizeof(std::int64_t));

/// The header of one round. Memory is pinned and lives as long as the object; nothing is allocated
/// after construction.
class HeaderExchange {
 public:
  explicit HeaderExchange(int ranks);

  /// Clears everything. No exchange of this header may be in flight.
  void clear();
  RoundHeader& header() { return *header_; }
  double& loss() { return *loss_; }
  /// This rank's entry before the exchange, all of them after it.
  RankEntry& entry(int rank) { return entries_[rank]; }
  std::span<const RankEntry> entries() const { return {entries_, static_cast<std::size_t>(ranks_)}; }

  /// Enqueues on `compute`: adds a micro-batch's counted outputs (float64 loss, int64 weight and
  /// correct, each [1]) to the header.
  void add(Stream& compute, const View& loss, const View& weight, const View& correct);
  /// Sums the header over the ranks once `ready` completes. Both events are the exchange's.
  struct Done {
    Event header, loss;
  };
  Done launch(CommThread& comm, const Event& ready, std::int64_t step);
  std::size_t bytes() const { return memory_.size(); }

 private:
  int ranks_;
  Buffer memory_;
  RoundHeader* header_;
  RankEntry* entries_;
  double* loss_;
  /// A GPU's outputs are brought here before they are added.
  double* staged_loss_;
  std::int64_t* staged_counts_;
};

}  // namespace sidestep
