// What a run writes and says while it trains: metrics.jsonl, ranks.jsonl, the progress line and
// summary.json. Every rank has one, since ranks.jsonl gathers times from all; only rank 0 writes.
// Main thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/evaluate.h"
#include "app/progress.h"
#include "app/rank_info.h"
#include "app/rig.h"
#include "io/metrics.h"
#include "io/run_folder.h"

namespace sidestep {

class Recorder {
 public:
  struct Config {
    const Settings& settings;
    const RunFolder* folder = nullptr;  ///< null on ranks other than 0
    std::vector<RankInfo> ranks;
    int rank = 0;
    std::int64_t dataset_size = 0, steps_per_epoch = 1, total_steps = 0;
    bool resumed = false;
    Position start;
  };
  explicit Recorder(const Config& config);

  /// After each completed step, on every rank; `eval` if this step was evaluated.
  void step(const StepReport& report, const std::optional<EvalResult>& eval, CommThread& comm);
  /// Time spent saving on this rank.
  void add_save_seconds(double seconds) {
    save_seconds_ += seconds;
    totals_[3] += seconds;
  }
  void pause() { progress_.pause(); }
  void go_on() { progress_.go_on(); }
  void say(const std::string& line);
  /// The lines so far reach the files: before each save, so that no checkpoint is ahead of them.
  void flush_files();
  /// Ends the interval of ranks.jsonl; everything written so far reaches the files.
  void flush(CommThread& comm);
  /// Writes summary.json (rank 0).
  struct Ending {
    std::string status;  ///< "running", "done" or "stopped"
    Position position;
    double seconds = 0;
    std::optional<EvalResult> test;
    std::optional<double> best;  ///< of the keep-best metric, larger is better (loss: negative)
    std::string checkpoint;
    std::size_t planned_bytes = 0;
  };
  void summarize(const Ending& ending) const;

 private:
  static constexpr std::size_t kTimes = 5;  ///< compute, input wait, exposed, save, samples
  void gather_times(std::int64_t last_step, CommThread& comm);
  void write_times();
  void write_metrics(const StepReport& report, const std::optional<EvalResult>& eval);

  Config config_;
  Progress progress_;
  std::optional<MetricsFile> metrics_, rank_times_;
  std::int64_t interval_first_, last_step_;
  std::int64_t gathered_first_ = 0, gathered_last_ = 0;
  std::array<double, kTimes> mine_{}, sent_{};
  std::array<double, kTimes> totals_{};  ///< this rank's, over the run
  std::vector<double> all_;
  std::optional<Event> gathering_;
  double save_seconds_ = 0;
  double last_loss_ = 0;
};

}  // namespace sidestep
