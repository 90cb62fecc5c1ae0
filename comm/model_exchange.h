// What ends a round of the model family: ranks add up how far their weights have moved, bucket by
// bucket, and the outer rule (or the elastic one) makes of it the weights that all go on from. Owns
// the common model. The main thread enqueues; work runs on the update stream and the comm thread.
// The store's gradients serve as the buffer that is sent: after the local updates nobody needs
// them.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/bucket_updater.h"
#include "comm/buckets.h"
#include "comm/comm_thread.h"
#include "comm/outer_rule.h"
#include "comm/sync_policy.h"

namespace sidestep {

class ModelExchange {
 public:
  /// All outlive the object.
  ModelExchange(ParamStore& store, CommThread& comm, Stream& update, const ModelRule& rule,
                const BucketSizes& sizes);

  /// What one exchange works on, in host (pinned) memory that outlives it.
  struct Numbers {
    MeanScalars scalars;
    std::int64_t own_weight = 0;  ///< samples (tokens) behind this rank's change
    double local_lr = 0;          ///< the round's, the same on every rank
  };

  /// Takes the store's values as the common model, the first time; waits.
  void begin();
  /// Enqueues the exchange after what is on the update stream: the rank's own updates.
  /// round.squares has one element a bucket. By bucket, `updated` is what the next forward waits
  /// for.
  void enqueue(Round& round, Numbers& numbers, std::span<Event> updated);

  /// Elastic: exchanges the store's values (the rank's own weights) with the common model; waits.
  void swap();
  /// The common model; for elastic rules the centre, and the rank's own weights while they are
  /// swapped.
  View common() const;
  OuterUpdate& outer() { return outer_; }
  const BucketPlan& plan() const { return plan_; }
  /// Payload of one exchange.
  std::int64_t payload() const;
  /// Nanoseconds the update stream has waited for the exchange so far.
  std::int64_t wait_ns() const { return wait_ns_.load(); }
  std::size_t bytes() const { return common_.size() + outer_.bytes(); }

 private:
  void wait_for(const Event& exchanged);
  View part(const View& flat, std::size_t bucket) const;
  void send(std::size_t bucket, std::int64_t step);
  void contribute(std::size_t bucket, const Numbers& numbers);
  void settle(const Round& round, Numbers& numbers) const;
  void apply(const Round& round, std::size_t bucket, const Numbers& numbers);
  void average_slot(int slot, std::int64_t step, const Numbers& numbers);

  ParamStore& store_;
  CommThread& comm_;
  Stream& update_;
  const ModelRule rule_;
  const BucketPlan plan_;
  OuterUpdate outer_;
  Buffer common_;
  bool begun_ = false;
  std::vector<Event> reduced_;           ///< by bucket
  std::vector<std::string> span_names_;  ///< by bucket
  std::int64_t wait_begin_ns_ = 0;       ///< the update stream's
  std::atomic<std::int64_t> wait_ns_{0};
};

}  // namespace sidestep
