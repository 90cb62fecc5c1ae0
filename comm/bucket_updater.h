// Applies a round's reduced gradients on the update stream, bucket by bucket: divisor, test for
// numbers that are not finite, clipping, optimizer. The main thread enqueues.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/buckets.h"
#include "comm/engine.h"
#include "comm/round_header.h"
#include "core/base/trace.h"
#include "core/device/buffer.h"
#include "core/device/stream.h"
#include "core/optim/optimizer.h"

namespace sidestep {

/// The numbers of a round. The pointers lead to host (pinned) memory that streams work on.
struct Round {
  std::int64_t step = -1;
  RoundHeader* header = nullptr;
  double* loss = nullptr;
  UpdateScalars* scalars = nullptr;
  double* squares = nullptr;  ///< by bucket: sum of squares of the reduced gradient
  /// Samples of the round's block, and the configured batch: the weight that took part divides, but
  /// not less than the one and not more than the other. 0 and 0: just that weight.
  std::int64_t nominal = 0, batch = 0;
  std::optional<double> grad_norm;
  Event header_in, loss_in;  ///< header and loss are summed over the ranks
  Event updated;             ///< the whole update is done
};

/// What a round came to, once its header and loss are in; `entries` as exchanged with the header. The
/// gradient's norm, which the update finds, is left open.
RoundResult result_of(const Round& round, std::span<const RankEntry> entries);

class BucketUpdater {
 public:
  /// Everything passed in outlives the updater. `clip_norm` 0: no clipping.
  BucketUpdater(ParamStore& store, const Optimizer& optimizer, const BucketPlan& plan,
                Stream& update, double clip_norm, Tracer* tracer);

  /// Enqueues the update of a round. By bucket: `reduced` and `last_reads` are waited for,
  /// `updated` is what the next forward waits for. The round's scalars hold the learning rate.
  /// The stream fails with Exit::numbers where a sum over the ranks is not finite.
  void enqueue(Round& round, std::span<const Event> reduced, std::span<const Event> last_reads,
               std::span<Event> updated);
  /// Nanoseconds the update stream has waited for sums over the ranks so far.
  std::int64_t wait_ns() const { return wait_ns_.load(); }

 private:
  void wait_for(const Event& exchanged);
  void enqueue_test(Round& round, std::size_t bucket, const Event& reduced);
  void enqueue_update(Round& round, std::size_t bucket, const Event& last_read);
  void clip(Round& round) const;

  ParamStore& store_;
  const Optimizer& optimizer_;
  const BucketPlan& plan_;
  Stream& update_;
  double clip_norm_;
  Tracer* tracer_;
  std::vector<std::string> span_names_;  ///< by bucket
  std::int64_t span_begin_ns_ = 0;       ///< the update stream's
  std::int64_t wait_begin_ns_ = 0;       ///< likewise
  std::atomic<std::int64_t> wait_ns_{0};
};

}  // namespace sidestep
