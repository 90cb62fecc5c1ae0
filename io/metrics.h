// The files a run leaves: metrics.jsonl (rank 0, a line a step), ranks.jsonl, summary.json.
// Written by the main thread of rank 0; lines are complete after a kill (flushed by interval).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sidestep {

/// A line of metrics.jsonl; the schema is fixed, absent values are null.
struct StepMetrics {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  std::int64_t samples_seen = 0;  ///< after this step, over all epochs
  std::int64_t samples = 0;       ///< of this step
  std::int64_t weight = 0;
  double loss = 0;      ///< mean over the weight
  double accuracy = 0;  ///< of the training batch
  double lr = 0;
  std::optional<double> grad_norm;
  std::int64_t participants = 0;
  std::uint64_t index_digest = 0;  ///< written as 16 hex digits
  double seconds = 0;              ///< of this step
  double input_wait_seconds = 0;
  double exposed_seconds = 0;  ///< exposed communication
  std::int64_t bytes = 0;              ///< exchanged by a rank in the round
  std::int64_t late_samples = 0;       ///< of `weight`, what joined from earlier rounds
  std::int64_t written_off = 0;        ///< samples computed and thrown away
  std::int64_t flushed = 0;            ///< ranks whose last micro-batch was not foreseen
  std::span<const std::int64_t> rank_samples;  ///< applied in this round, by rank
  std::span<const std::int64_t> ages;          ///< applied in this round, by age in rounds
  std::span<const int> delayed;        ///< ranks with a delay on purpose
  std::optional<double> eval_loss, eval_accuracy;
  std::optional<std::int64_t> eval_correct, eval_samples;
};

/// A line of ranks.jsonl: one rank's times over an interval of steps.
struct RankMetrics {
  std::int64_t first_step = 0, last_step = 0;
  int rank = 0;
  std::string host;
  double compute_seconds = 0, input_wait_seconds = 0, exposed_seconds = 0, save_seconds = 0;
  std::int64_t samples = 0;
  double exchange_seconds = 0;      ///< from own readiness to the end of each exchange
  std::int64_t micro_batches = 0;   ///< behind compute_seconds
  double step_median_seconds = 0;   ///< compute of a round: this rank's median
  std::string_view state = "calm";  ///< the detector's
};

/// One JSON object a line. Numbers that are not finite are written as null. write() formats into
/// memory kept for that and allocates nothing; it writes out what has gathered when a second has
/// passed since the last time. Failures are Exit::checkpoint naming the path and the system's
/// error.
class MetricsFile {
 public:
  /// Opens for appending; on resume drops lines after `resumed_step` (those steps are run again)
  /// and a last line that a kill cut off.
  MetricsFile(std::filesystem::path path, std::optional<std::int64_t> resumed_step);
  /// Flushes; a failure is logged.
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  void write(const StepMetrics& line);
  void write(const RankMetrics& line);
  /// A line of JSON made by the caller.
  void write_line(std::string_view json);
  /// Hands all lines to the system. Call it before a long pause (evaluation, end of the run).
  void flush();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sidestep
