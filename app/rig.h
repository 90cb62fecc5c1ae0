// Everything one rank needs to run rounds: planner, loader, executor, streams, comm thread and engine,
// built once before step 1. The main thread enqueues a round and completes it later, so that the next
// one is already queued while this one's result is awaited (where the policy allows it).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "app/coverage.h"
#include "app/emulation.h"
#include "app/planner.h"
#include "app/settings.h"
#include "comm/comm_thread.h"
#include "comm/engine.h"
#include "comm/local_engine.h"
#include "comm/quorum_engine.h"
#include "comm/sync_policy.h"
#include "core/graph/executor.h"
#include "core/model/model.h"
#include "core/optim/optimizer.h"
#include "core/optim/schedule.h"
#include "io/prefetch.h"

namespace sidestep {

/// What completing a round tells.
struct StepReport {
  RoundResult round;
  Position after;
  double lr = 0;
  std::int64_t step_ns = 0;        ///< since the round before was completed
  std::int64_t input_wait_ns = 0;  ///< main thread waiting for the loader
  std::int64_t exposed_ns = 0;     ///< compute stream waiting for weights: exchange not hidden
  std::int64_t compute_ns = 0;     ///< compute stream busy with this rank's samples
  std::int64_t own_samples = 0;    ///< of this rank
};

class Rig {
 public:
  struct Config {
    const Settings& settings;
    Device device;
    ModelConfig model;
    Dataset& data;
    Goal goal;
    int threads = 1;             ///< compute threads of this rank
    bool shared_update = false;  ///< updates run on the compute stream
    Tracer* tracer = nullptr;
    /// Positions after which the weights are looked at (saved, evaluated): no round goes beyond.
    std::function<bool(const Position&)> boundary = [](const Position&) { return false; };
    std::vector<JournalLine> replay = {};  ///< quorum family: rounds to repeat
    /// Rank 0 of the quorum family, on the comm thread: a line for the journal.
    std::function<void(const JournalLine&)> journal = {};
  };
  Rig(const Config& config, std::unique_ptr<Communicator> comm);
  ~Rig();

  /// Starts loading from here on. Weights and optimizer slots must be in place. `returned` is what the
  /// epoch so far has left out.
  void start(const Position& position, std::vector<Range> returned = {});
  /// True when nothing is left to enqueue, or all ranks have agreed to stop.
  bool finished() const;
  /// Enqueues the next round; `stop` is this rank's wish to stop.
  void enqueue(bool stop);
  /// How many rounds may stay outstanding now.
  int may_lag() const;
  /// Waits until this rank's own part of the oldest outstanding round is computed.
  void wait_computed() const;
  /// Waits for the oldest outstanding round.
  StepReport complete();
  int outstanding() const;
  /// After a failure for numbers: what this rank has to say of the oldest outstanding round's samples
  /// ("loss nan; input not finite in samples 12, 40"); empty if its share was finite.
  std::string inspect_numbers();
  /// Training stood still for a checkpoint.
  void add_save_ns(std::int64_t ns) { last_times_.save_ns += ns; }
  /// This rank's times that no header has told the others yet.
  const RankEntry& unsent_times() const { return last_times_; }
  /// The first step that is not enqueued yet.
  std::int64_t next_step() const { return enqueued_.step + 1; }
  /// The position after the last completed round, and what its epoch has left out so far.
  const Position& position() const { return completed_; }
  std::vector<Range> returned() const { return planner_->returned(); }

  ParamStore& params() { return executor_->params(); }
  Executor& executor() { return *executor_; }
  Engine& engine() { return *engine_; }
  CommThread& comm() { return *comm_; }
  Stream& compute() { return compute_; }
  SyncPolicy& policy() { return *policy_; }
  /// The policy's state for a checkpoint, with every rank's votes; collective, between rounds.
  std::string save_policy();
  void load_policy(const std::string& state);
  /// Null under policies that never leave a sample out.
  Coverage* coverage() { return coverage_.get(); }
  const Emulation& emulation() const { return *emulation_; }
  const ModelBuilder& builder() const { return builder_; }
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  std::int64_t buckets() const { return buckets_; }
  /// Samples of this rank's micro-batches in a usual step.
  std::vector<std::int64_t> usual_units() const;
  /// Bytes of parameters, gradients, slots, activations, input buffers and the engine's own.
  std::size_t planned_bytes() const;
  /// Every rank's share of a global batch of this size, as long as all ranks are equally fast.
  std::vector<std::int64_t> shares(std::int64_t global_batch) const;

 private:
  /// A round on its way. Times are the compute stream's, without waits for weights.
  struct Pending {
    std::int64_t step = 0;  ///< the last of the round
    Position after;
    double lr = 0;
    double loss = 0, unit_loss = 0;  ///< this rank's sum
    std::int64_t input_wait_ns = 0, own_samples = 0;
    std::int64_t compute_ns = 0, units = 0;
    std::int64_t begin_ns = 0, begin_wait_ns = 0;  ///< where the last step began
    std::int64_t unit_begin_ns = 0, unit_wait_ns = 0;  ///< where the last micro-batch began
    Event computed;  ///< compute_ns is final
  };
  /// This rank's part of a planned round.
  struct Work {
    std::int64_t step = 0, share = 0;
    double stop_after_s = 0;
  };
  struct RoundTerms {
    std::int64_t nominal = 0;
    double lr = 0;
    std::int64_t update_number = 0;
  };
  /// What the comm thread tells of a closed round (quorum family).
  struct Closed {
    Position after;
    double lr = 0;
    bool last = false;
  };

  std::vector<std::int64_t> unit_sizes() const;
  int prefetch_depth() const;
  void build_engine(const Config& config);
  Work work_of(const PlannedRound& round) const;
  Pending& new_pending();
  void begin_round(const Work& work, Pending& pending, const RoundTerms& terms, bool stop);
  std::int64_t local_update();
  void run_step(const Work& work, Pending& pending);
  void run_unit(const LoadedBatch& batch, int unit, bool last, Pending& pending);
  void begin_timing(Pending& pending);
  void end_timing(Pending& pending);
  bool foresees_end(const Work& work, const Pending& pending, int executed) const;
  std::int64_t elapsed_ns(const Pending& pending) const;
  LoadedBatch take(std::int64_t step, Pending& pending);
  void count_classes(const LoadedBatch& batch, bool computed);
  void enqueue_gradient(bool stop);
  void enqueue_local(bool stop);
  void enqueue_claimed(bool stop);
  void account(const Pending& pending);
  RoundInfo open_round(std::int64_t round);
  void close_round(const RoundResult& result);

  const Settings& settings_;
  int rank_, ranks_;
  Dataset& data_;
  Goal goal_;
  std::function<bool(const Position&)> boundary_;
  std::unique_ptr<SyncPolicy> policy_;
  ModelRule model_rule_;
  ModelBuilder builder_;
  std::int64_t steps_per_epoch_;
  ScheduleConfig schedule_;
  std::int64_t unit_;  ///< samples of a usual micro-batch
  std::unique_ptr<Emulation> emulation_;
  std::unique_ptr<Coverage> coverage_;
  std::unique_ptr<Planner> planner_;
  Tracer* tracer_;
  std::unique_ptr<CommThread> comm_;
  Stream compute_;
  Stream update_;
  bool shared_update_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Engine> engine_;
  QuorumEngine* quorum_ = nullptr;  ///< the engine, if it is one; likewise
  LocalEngine* local_ = nullptr;
  std::int64_t buckets_ = 0;

  Position enqueued_, completed_;
  std::int64_t local_updates_ = 0, updates_in_round_ = 0;
  StepReport reported_;  ///< own times that no report has told yet
  std::array<Pending, Engine::kKept> pending_;
  std::int64_t begun_ = 0, ended_ = 0;  ///< rounds of this rank
  RankEntry last_times_;                ///< of the last completed round of this rank
  std::mutex closed_mutex_;
  std::deque<Closed> closed_;           ///< quorum family, under closed_mutex_
  bool closing_ = false;                ///< quorum family, the comm thread's: the next round is the last
  bool stopped_ = false;
  std::int64_t last_completed_ns_ = 0;
  std::int64_t gate_wait_before_ = 0;
  double unit_ns_ = 0;  ///< smoothed time of an own micro-batch
  std::unique_ptr<Prefetcher> prefetch_;  // last: its thread reads the members above
};

/// The schedule in samples that the settings ask for. `total_samples` is the whole training's.
ScheduleConfig schedule_from(const Settings& settings, std::int64_t dataset_size,
                             std::int64_t total_samples);
/// The model asked for, for the data's samples and classes.
ModelConfig model_from(const Settings& settings, const Dataset& data);
OptimizerConfig optimizer_from(const Settings& settings);
PolicyConfig policy_from(const Settings& settings, int ranks);

}  // namespace sidestep
