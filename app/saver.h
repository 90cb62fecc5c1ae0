// Checkpoints of a run: what goes into a file, saving without stopping training, and restoring.
// Main thread; HDF5 work runs on the storage thread.
#pragma once

#include <filesystem>
#include <future>
#include <optional>
#include <string>

#include "app/rig.h"
#include "app/settings.h"
#include "core/base/trace.h"
#include "io/checkpoint_file.h"
#include "io/checkpoint_folder.h"
#include "io/storage_thread.h"

namespace sidestep {

/// What a checkpoint says beside the tensors.
struct RunState {
  Position position;
  std::vector<Range> returned;  ///< what the epoch has left out so far, to be served again
  std::int64_t seed = 0;
  int ranks = 1;
  std::string config;  ///< config_text() of the settings
  ModelConfig model;   ///< with the sample shape and classes in force
  std::string data;    ///< description of the training data
  std::uint64_t data_digest = 0;
  std::string optimizer, policy;
  std::string policy_state;  ///< SyncPolicy::save()
  std::optional<double> best;  ///< best value of the keep-best metric so far
};

/// A file's content from parameters, slots and state; copies the values (the snapshot).
CheckpointContent make_content(const ParamStore& params, const RunState& state);

/// The state of a file. Exit::checkpoint naming the attribute that is missing.
RunState read_state(const CheckpointContent& content, const std::string& file);
/// Weights into the store; Exit::checkpoint listing parameters that are missing, have another
/// shape, or are not of this model.
void restore_weights(const CheckpointContent& content, const std::string& file, ParamStore& params);
/// Optimizer slots likewise; nothing starts at zero silently.
void restore_slots(const CheckpointContent& content, const std::string& file, ParamStore& params);

/// What an engine keeps beside weights and slots, under /sync: replicated tensors, and those of each
/// rank under /sync/rank/<r>. Collective, between rounds; `content` is null but on rank 0.
void gather_extras(Engine& engine, const ParamStore& params, CommThread& comm,
                   CheckpointContent* content);
/// The way back. What the file lacks, or holds for another number of ranks, starts as in a fresh run;
/// returns a line for each of these (rank 0).
std::vector<std::string> restore_extras(Engine& engine, const ParamStore& params, CommThread& comm,
                                        const CheckpointContent* content, bool same_ranks);

/// Rank 0's saving. A save is queued while training goes on; its failure is thrown by the next
/// call.
class Saver {
 public:
  Saver(CheckpointFolder folder, StorageThread& storage, int keep, Tracer* tracer);
  /// Waits for unfinished saves.
  ~Saver();
  /// Queues content as the checkpoint of its step and prunes old ones once it is published. Waits
  /// first if an earlier save still runs (memory holds one snapshot); returns the seconds waited.
  double save(CheckpointContent content, std::int64_t step);
  /// Queues content as best.h5.
  double save_best(CheckpointContent content, std::int64_t step);
  /// Throws if a finished save has failed.
  void poll();
  /// Waits for what is queued; throws if it failed.
  void finish();
  std::string last_file() const { return last_file_; }

 private:
  double queue(CheckpointContent content, std::filesystem::path file, std::int64_t step,
               bool prune);

  CheckpointFolder folder_;
  StorageThread& storage_;
  int keep_;
  Tracer* tracer_;
  std::future<void> running_;
  std::string last_file_;
};

}  // namespace sidestep
