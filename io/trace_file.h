// trace.json in Chrome's trace format: one process row a rank, rows for compute, update,
// communication, input and saving. Pure but for the final write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/trace.h"

namespace sidestep {

struct RankTrace {
  int rank = 0;
  std::string host;
  std::int64_t offset_ns = 0;  ///< added to this rank's clock to give rank 0's
  std::vector<TraceSpan> spans;
  std::vector<std::string>
      names;  ///< if not empty, spans[i].name is names[i] (received from a rank)
  std::size_t dropped = 0;
};

/// A rank's spans as text, for the gather; parse_rank_trace reverses it (into `names`) and fails
/// with Exit::internal on any other text.
std::string serialize(const RankTrace& trace);
RankTrace parse_rank_trace(const std::string& text);

/// Most spans written to a file: about 150 MB, which the viewers still open.
inline constexpr std::size_t kMaxTraceSpans = 1'000'000;

/// Writes atomically, piece by piece. Times are microseconds on rank 0's clock, counted from the
/// earliest span. Each rank has an equal share of `max_spans` and keeps its earliest ones. Metadata
/// holds the steps asked for, the steps held completely, and per rank the host, clock offset and
/// dropped spans. Returns that as one line for the log. Exit::checkpoint if it cannot be written.
std::string write_trace(const std::filesystem::path& path, const std::vector<RankTrace>& ranks,
                        std::int64_t first_step, std::int64_t last_step,
                        std::size_t max_spans = kMaxTraceSpans);

}  // namespace sidestep
