// What a run writes and says while it trains: metrics.jsonl, ranks.jsonl, the progress line and
// summary.json. Every rank has one, since ranks.jsonl gathers times from all; only rank 0 writes.
// Main thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/evaluate.h"
#include "app/progress.h"
#include "app/rank_info.h"
#include "app/rig.h"
#include "comm/detector.h"
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
    const Injector* injector = nullptr;  ///< null: no delays on purpose
    int round_steps = 1;                 ///< injector: steps of a round
  };
  explicit Recorder(const Config& config);

  /// After each completed step, on every rank; `eval` if this step was evaluated.
  void step(const StepReport& report, const std::optional<EvalResult>& eval,
            const Detector& detector);
  void pause() { progress_.pause(); }
  void go_on() { progress_.go_on(); }
  void say(const std::string& line);
  /// The lines so far reach the files: before each save, so that no checkpoint is ahead of them.
  void flush_files();
  /// Ends the interval of ranks.jsonl, with each rank's times that no round has told; collective.
  /// Everything written so far reaches the files.
  void flush(CommThread& comm, const RankEntry& unsent, const Detector& detector);
  /// Writes summary.json (rank 0).
  struct Ending {
    std::string status;  ///< "running", "done" or "stopped"
    Position position;
    double seconds = 0;
    std::optional<EvalResult> test;
    std::optional<double> best;  ///< of the keep-best metric, larger is better (loss: negative)
    std::string checkpoint;
    std::size_t planned_bytes = 0;
    std::vector<Coverage::Class> classes = {};  ///< empty: nothing is ever left out
  };
  void summarize(const Ending& ending) const;

 private:
  /// What an interval of ranks.jsonl has added up of a rank.
  struct Interval {
    double compute = 0, input = 0, exposed = 0, save = 0, exchange = 0;
    std::int64_t samples = 0, units = 0;
    std::vector<double> rounds;  ///< compute of each
  };
  void add(const RankEntry& entry, Interval& interval) const;
  void write_intervals(std::int64_t last_step, const Detector& detector);
  void count_participation(const RoundResult& round);
  std::size_t last_age() const;  ///< ages of the last round that occurred
  std::vector<int> delayed_ranks(std::int64_t round) const;
  void write_metrics(const StepReport& report, const std::optional<EvalResult>& eval);

  Config config_;
  Progress progress_;
  std::optional<MetricsFile> metrics_, rank_times_;
  std::int64_t interval_first_, last_step_;
  std::vector<Interval> intervals_;  ///< by rank
  Interval total_;                   ///< of rank 0, over the run
  std::vector<std::int64_t> rank_samples_, ages_;  ///< of the last round
  std::int64_t late_ = 0, written_off_ = 0;        ///< likewise
  struct Totals {
    std::int64_t applied = 0, late = 0, written_off = 0, bytes = 0, rounds = 0;
    std::vector<std::int64_t> by_rank, by_age;
  } run_;
  double training_seconds_ = 0;  ///< without evaluation, start and end
  double last_loss_ = 0;
};

}  // namespace sidestep
