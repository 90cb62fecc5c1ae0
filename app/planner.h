// What is computed when and by whom: hands out the samples of each round, cuts a rank's range into
// micro-batches, and takes back what a round did not apply. Every rank plans alike from the same
// results. Main thread (quorum family: the comm thread, too) plans; the loader thread asks what to
// load; a mutex orders them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "comm/sync_policy.h"
#include "io/ledger.h"
#include "io/prefetch.h"
#include "io/sampler.h"

namespace sidestep {

/// Where training stands: what a checkpoint stores and a restart needs.
struct Position {
  std::int64_t step = 0;  ///< steps done; step numbers count from 1
  std::int64_t samples_seen = 0;
  Cursor cursor;
  bool operator==(const Position&) const = default;
};

/// Where a training ends: after `steps` steps if that is positive, else after `epochs` epochs.
struct Goal {
  std::int64_t steps = 0, epochs = 0;
  bool reached(const Position& position) const {
    return steps > 0 ? position.step >= steps : position.cursor.epoch >= epochs;
  }
};

struct PlannedRound {
  std::int64_t step = 0;
  Block block;
  std::vector<std::int64_t> shares;  ///< by rank
  std::int64_t own_begin = 0, own_end = 0;  ///< this rank's range within the block
  double stop_after_s = 0;
  std::int64_t seen_before = 0;  ///< samples, as far as results were known
  Position after;                ///< if everything is applied
  bool hands_out_last = false;   ///< nothing of the epoch is left behind it
  std::int64_t size() const { return block.size(); }
};

class Planner {
 public:
  struct Config {
    SyncPolicy& policy;
    std::int64_t dataset_size = 0, batch = 0;
    std::uint64_t seed = 0;
    bool shuffle = true;
    bool rotated = false;    ///< ranks walk through chunks in rotated order (SelDP)
    bool gives_back = false; ///< a round may leave samples out, which are served again
    int rank = 0, ranks = 1;
    int lookahead = 8;       ///< rounds planned ahead for the loader
    Goal goal;
    std::vector<std::int64_t> unit_sizes;  ///< micro-batches that can occur, largest first
  };
  explicit Planner(const Config& config);

  void start(const Position& position, std::vector<Range> returned);
  /// True when nothing is left to train.
  bool finished() const;
  /// False while the round after the last planned one depends on results that are not settled yet.
  bool can_plan(std::int64_t step) const;
  /// The round `step`, planned now if it was not; stays valid for kKept rounds.
  static constexpr int kKept = 64;
  const PlannedRound& round(std::int64_t step);
  /// Results, in order. What was left out comes back.
  void settle(std::int64_t step, std::span<const RankEntry> entries);
  /// After the last settled round.
  Position committed() const;
  std::vector<Range> returned() const;

  /// The loader's: the next micro-batch of this rank; blocks until it is planned. A rank without
  /// samples in a round gets one empty request. False at the end, or after close().
  bool next_unit(LoadRequest& request);
  /// Samples of each micro-batch of a share, in order; a share of 0 has none.
  std::vector<std::int64_t> units_of(std::int64_t share) const;
  void close();
  /// Ids of this rank's range of a round, for reports.
  std::vector<std::int64_t> own_samples(std::int64_t step);

 private:
  /// Work of a rank that a round went on without.
  struct Pending {
    std::int64_t round = 0;
    std::vector<Range> ranges;
  };
  PlannedRound& slot(std::int64_t step) { return rounds_[static_cast<std::size_t>(step % kKept)]; }
  bool can_plan_next() const;
  void plan_next();
  void normalize();
  void settle_rank(const PlannedRound& round, int rank, const RankEntry& entry);
  void give_back(std::span<const Range> ranges);
  std::int64_t unit_at(std::int64_t left) const;
  std::int64_t rotated_position(const PlannedRound& round) const;
  void own_ids(Sampler& sampler, const PlannedRound& round, std::int64_t begin, std::int64_t end,
               std::vector<std::int64_t>& ids);

  Config config_;
  Sampler sampler_;  ///< the loader's
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Ledger ledger_;
  std::vector<PlannedRound> rounds_{kKept};
  std::vector<Pending> pending_;  ///< by rank
  std::vector<Range> slice_;
  WorkPlan work_;
  std::int64_t planned_ = 0, settled_ = 0;  ///< last steps
  std::int64_t seen_ = 0;                   ///< handed out and not given back
  Position committed_;
  bool closed_ = false;

  std::int64_t loading_step_ = 0, loading_at_ = 0;  ///< the loader's: next unit of which round
  std::vector<Range> loading_ranges_;
};

}  // namespace sidestep
