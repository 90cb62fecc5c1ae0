// Training, from agreement at start to the summary. One object a run; main thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "app/evaluate.h"
#include "app/rank_info.h"
#include "app/recorder.h"
#include "app/rig.h"
#include "app/saver.h"
#include "app/settings.h"
#include "comm/mpi_job.h"
#include "core/base/error.h"
#include "io/dataset.h"
#include "io/run_folder.h"
#include "io/storage_thread.h"

namespace sidestep {

class Trainer {
 public:
  Trainer(Settings& settings, MpiJob& job);
  ~Trainer();
  /// Runs to the end, or until it is asked to stop; returns the exit code (0 or 75).
  int run();
  /// Before an end by abort, which runs no destructors: a start that failed leaves no empty folder.
  void give_up() noexcept {
    if (folder_) folder_->discard_if_empty();
  }

 private:
  // Setup, in this order (trainer_setup.cc).
  void agree_on_start();
  void claim_folder();
  void take_over_checkpoint();
  void open_inputs();
  void build();
  void restore();
  void announce() const;

  // The step loop (trainer.cc).
  void loop();
  void handle(const StepReport& report);
  std::optional<EvalResult> evaluate(std::int64_t step);
  void save(std::int64_t step);
  bool wants_to_stop() const;
  bool is_save_step(const Position& position) const;
  bool is_eval_step(const Position& position) const;
  void end(const std::string& status);
  Recorder::Ending ending(const std::string& status) const;
  /// The last one saved, or the one this run went on from; empty if there is none.
  std::string newest_checkpoint() const;
  std::size_t planned_bytes() const {
    return rig_->planned_bytes() + (evaluator_ ? evaluator_->bytes() : 0);
  }
  void write_trace_file();
  [[noreturn]] void explain_numbers(const Error& error);

  bool leads() const { return job_.rank() == 0; }
  RunState state() const;

  Settings& settings_;
  MpiJob& job_;
  std::int64_t start_ns_;
  std::vector<RankInfo> ranks_;
  Device device_;
  int threads_ = 1;
  bool shared_update_ = false;
  std::unique_ptr<Communicator> world_;  ///< until the rig takes it
  std::optional<RunFolder> folder_;      ///< rank 0
  std::unique_ptr<StorageThread> storage_;
  std::string resumed_file_;             ///< empty: a fresh start
  std::optional<std::pair<std::string, std::uint64_t>> resumed_data_;  ///< description and digest
  std::optional<CheckpointContent> content_;  ///< rank 0, until restored
  DataPair data_;
  ModelConfig model_;
  std::int64_t last_step_ = 0;
  Position start_;
  std::optional<double> best_;
  std::unique_ptr<Tracer> tracer_;
  std::int64_t clock_offset_ns_ = 0;  ///< to rank 0's clock
  std::unique_ptr<Rig> rig_;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<Saver> saver_;      ///< rank 0
  std::unique_ptr<Recorder> recorder_;
  std::optional<EvalResult> last_eval_;
  std::int64_t last_eval_step_ = -1, last_save_step_ = -1;
  bool stopping_ = false;
};

/// The device asked for: Exit::device with the runtime's words if there is no GPU.
Device choose_device(const std::string& wanted, int local_rank);
/// What this rank tells the others of itself.
RankInfo own_info(const MpiJob& job, Device device);
/// Compute threads of a rank: those asked for, else its share of the cores.
int compute_threads_for(const Settings& settings, const std::vector<RankInfo>& ranks, int rank);
/// True if updates run on the compute stream: asked for, or the rank has one core.
bool shares_update_thread(const Settings& settings, int threads);

}  // namespace sidestep
