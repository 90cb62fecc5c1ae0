// Training, from agreement at start to the summary. One object a run; main thread.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "app/evaluate.h"
#include "app/rank_info.h"
#include "app/recorder.h"
#include "app/rig.h"
#include "app/saver.h"
#include "app/settings.h"
#include "comm/detector.h"
#include "comm/heartbeat.h"
#include "comm/mpi_job.h"
#include "core/base/error.h"
#include "io/dataset.h"
#include "io/rank_marks.h"
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
    if (mark_ && mark_->ended() != nullptr) *mark_->ended() = 1;
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
  void restore_policy();
  void load_replay();
  void write_journal(const JournalLine& line);
  void flush_journal();
  void announce() const;
  void set_mark();
  void remove_mark();

  // The step loop (trainer.cc).
  void loop();
  void complete();
  void handle(const StepReport& report);
  std::optional<EvalResult> evaluate(std::int64_t step);
  void save(std::int64_t step);
  bool wants_to_stop() const;
  void watch(const StepReport& report);
  void review_classes(const StepReport& report);
  void progress_at(std::int64_t step, Phase phase);
  /// Of the whole training; an estimate where rounds may leave samples out.
  std::int64_t total_steps() const;
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

  const Injector* injector() const {
    const Injector& all = rig_->emulation().injector();
    return all.active() ? &all : nullptr;
  }
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
  Goal goal_;
  Position start_;
  std::vector<Range> returned_;  ///< what the resumed epoch has left out
  std::string policy_state_, resumed_policy_;
  int resumed_ranks_ = 0;
  std::vector<JournalLine> replay_;
  bool replay_differs_ = false;  ///< told
  std::optional<double> best_;
  std::unique_ptr<Tracer> tracer_;
  std::int64_t clock_offset_ns_ = 0;  ///< to rank 0's clock
  std::mutex journal_mutex_;
  std::optional<MetricsFile> journal_;  ///< rank 0, quorum family; the comm thread writes
  std::unique_ptr<RankMark> mark_;
  std::unique_ptr<Heartbeat> heartbeat_;  ///< the comm thread polls it
  std::unique_ptr<Rig> rig_;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<Saver> saver_;      ///< rank 0
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<Detector> detector_;
  std::optional<EvalResult> last_eval_;
  std::int64_t last_eval_step_ = -1, last_save_step_ = -1;
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
