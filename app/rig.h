// Everything one rank needs to run steps: loader, executor, streams, comm thread and round engine,
// built once before step 1. The main thread enqueues a step and completes it later, so that the
// next step is already queued while this one's result is awaited.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "app/settings.h"
#include "comm/comm_thread.h"
#include "comm/round_engine.h"
#include "comm/sync_policy.h"
#include "core/graph/executor.h"
#include "core/model/model.h"
#include "core/optim/optimizer.h"
#include "core/optim/schedule.h"
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

/// What completing a step tells.
struct StepReport {
  RoundResult round;
  Position after;
  double lr = 0;
  std::int64_t step_ns = 0;        ///< since the step before was completed
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
    std::int64_t last_step = 0;  ///< steps to run in total, counted from the run's first step
    int threads = 1;             ///< compute threads of this rank
    bool shared_update = false;  ///< updates run on the compute stream
    Tracer* tracer = nullptr;
  };
  Rig(const Config& config, std::unique_ptr<Communicator> comm);
  ~Rig();

  /// Starts loading from here on. Weights and optimizer slots must be in place.
  void start(const Position& position);
  /// Enqueues the next step; `stop` is this rank's wish to stop. At most two may be outstanding.
  void enqueue(bool stop);
  /// Waits for the oldest outstanding step.
  StepReport complete();
  /// After a failure for numbers: what this rank has to say of the oldest outstanding step's samples
  /// ("loss nan; input not finite in samples 12, 40"); empty if its share was finite.
  std::string inspect_numbers();
  int outstanding() const { return static_cast<int>(enqueued_.step - completed_); }
  /// The position after the last enqueued step.
  const Position& enqueued() const { return enqueued_; }

  ParamStore& params() { return executor_->params(); }
  Executor& executor() { return *executor_; }
  RoundEngine& engine() { return *engine_; }
  CommThread& comm() { return *comm_; }
  Stream& compute() { return compute_; }
  const Sampler& sampler() const { return sampler_; }
  const ModelBuilder& builder() const { return builder_; }
  /// Bytes of parameters, gradients, slots, activations and input buffers.
  std::size_t planned_bytes() const;
  /// This rank's share of a global batch of each size, in the sampler's order of sizes.
  std::vector<std::int64_t> shares(std::int64_t global_batch) const;

 private:
  struct Pending {
    Position after;
    double lr = 0;
    Cursor cursor;  ///< of its global batch
    std::int64_t batch = 0;
    double loss = 0;  ///< this rank's sum; written by the compute stream
    std::int64_t input_wait_ns = 0, own_samples = 0;
    /// Time on the compute stream without waits for weights; written there, first as minus the begin.
    std::int64_t compute_ns = 0;
    Event computed;  ///< compute_ns is final
  };
  bool next_request(LoadRequest& request);
  std::vector<std::int64_t> own_batches() const;
  void run_samples(const LoadedBatch& batch, Pending& pending, bool stop);

  const Settings& settings_;
  int rank_, ranks_;
  std::int64_t last_step_;
  Dataset& data_;
  Sampler sampler_;
  std::unique_ptr<SyncPolicy> policy_;
  ModelBuilder builder_;
  ScheduleConfig schedule_;
  Tracer* tracer_;
  std::unique_ptr<CommThread> comm_;
  Stream compute_;
  Stream update_;
  bool shared_update_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<RoundEngine> engine_;

  Position loading_;  ///< of the loader thread, after start()
  WorkPlan plan_;     ///< of the loader thread
  Position enqueued_;
  std::int64_t completed_ = 0;
  std::array<Pending, RoundEngine::kKept> pending_;
  std::int64_t last_completed_ns_ = 0;
  std::int64_t gate_wait_before_ = 0;
  std::unique_ptr<Prefetcher> prefetch_;  // last: its thread reads the members above
};

/// The schedule in samples that the settings ask for. `total_samples` is the whole training's.
ScheduleConfig schedule_from(const Settings& settings, std::int64_t dataset_size,
                             std::int64_t total_samples);
/// The model asked for, for the data's samples and classes.
ModelConfig model_from(const Settings& settings, const Dataset& data);
OptimizerConfig optimizer_from(const Settings& settings);

}  // namespace sidestep
