// The buffers of the quorum family beside the store's own (fill, send, master) and the work on
// them: what a rank puts into a round, its sum over the ranks, and the ordered update of the master
// copy. Comm thread only, but for master(), version() and bytes(); works on the update stream.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/bucket_updater.h"
#include "comm/buckets.h"
#include "comm/comm_thread.h"
#include "comm/round_header.h"
#include "core/device/buffer.h"
#include "core/device/stream.h"
#include "core/graph/param_store.h"
#include "core/optim/optimizer.h"

namespace sidestep {

class QuorumLane {
 public:
  static constexpr int kSlots = 4;

  struct Options {
    BucketSizes buckets;
    double clip_norm = 0;
    Tracer* tracer = nullptr;
    std::function<void(std::int64_t round, const View& master)> applied;  ///< test hook
  };

  /// One round that is launched and not yet forgotten.
  struct Slot {
    Slot(int ranks, std::size_t buckets) : header(ranks), squares(buckets) {}
    HeaderExchange header;
    UpdateScalars scalars;
    std::vector<double> squares;
    Round round;
    std::int64_t ready_ns = 0;   ///< this rank had what it gives
    std::int64_t done_ns = 0;    ///< exchange and update are over
    std::uint64_t checksum = 0;  ///< of the master copy, at a flush round
  };

  /// What this rank puts into a round.
  struct Gift {
    /// By bucket: its gradient is final after this event; null: no fresh gradient.
    const std::vector<Event>* fresh = nullptr;
    bool fill = false;  ///< fill is in it
  };

  QuorumLane(ParamStore& store, const Optimizer& optimizer, CommThread& comm, Stream& update,
             const Options& options);

  const BucketPlan& plan() const { return plan_; }
  /// The newest applied round; negative while one is being applied. Any thread, any stream.
  std::int64_t version() const { return version_.load(); }
  View master() const { return rounds_.values(); }
  std::size_t bytes() const;
  /// What a round exchanges.
  std::int64_t bytes_exchanged() const;

  Slot& slot(std::int64_t round) { return slots_[static_cast<std::size_t>(round % kSlots)]; }
  /// Before the first round: `round` is the version that master holds.
  void set_version(std::int64_t round) { version_.store(round); }
  /// fill = the store's gradients; the event: they may be overwritten.
  Event deposit();
  /// fill *= factor
  void weigh_fill(float factor);
  /// Launches a round, whose header and Round fields are filled in: header first, then buckets. The
  /// event: gradients and fill may be overwritten.
  Event send(Slot& slot, const Gift& gift);
  /// Enqueues its update after `readers` (master is still read before) and sets Round::updated.
  /// `flush`: compares checksums over the ranks; the stream fails with Exit::internal.
  void apply(Slot& slot, const Event& readers, bool flush);
  /// Waits for the update stream, whatever became of it.
  void settle();

 private:
  View slice(const View& flat, std::size_t bucket) const;
  void put(std::size_t bucket, const Gift& gift);
  void compare_checksums(Slot& slot);
  View check_view(const Slot& slot, std::size_t which) const;

  ParamStore& store_;
  ParamStore rounds_;  ///< values: master; gradients: send; the store's slots
  CommThread& comm_;
  Stream& update_;
  const Options options_;
  const BucketPlan plan_;
  BucketUpdater updater_;
  Buffer fill_;
  Buffer staged_;           ///< master on the host, for checksums; empty where it is there already
  Buffer checks_;           ///< by slot: smallest and largest checksum of the ranks
  std::deque<Slot> slots_;  ///< addresses stay
  std::vector<std::string> span_names_;
  std::vector<Event> reduced_, readers_, updated_;  ///< by bucket
  std::atomic<std::int64_t> version_{0};
};

}  // namespace sidestep
