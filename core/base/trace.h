// Timestamped spans of work for the trace file, kept in memory that is allocated beforehand.
// Any thread may add; a full tracer drops spans and counts them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

namespace sidestep {

/// Rows of a rank in the trace.
enum class TraceRow : std::uint8_t { compute, update, communication, input, saving };

/// Steady-clock nanoseconds since an arbitrary origin of this process.
std::int64_t now_ns();

struct TraceSpan {
  const char* name = "";    ///< must outlive the tracer (names of nodes, buckets, literals)
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t step = 0;
  TraceRow row = TraceRow::compute;
};

class Tracer {
 public:
  /// Keeps at most `capacity` spans.
  explicit Tracer(std::size_t capacity) : spans_(capacity) {}
  /// Spans outside [first_step, last_step] are ignored. Set before the first add.
  void set_window(std::int64_t first_step, std::int64_t last_step) {
    first_ = first_step;
    last_ = last_step;
  }
  bool wants(std::int64_t step) const { return step >= first_ && step <= last_; }
  void add(const TraceSpan& span) {
    if (!wants(span.step)) return;
    const std::size_t i = used_.fetch_add(1, std::memory_order_relaxed);
    if (i < spans_.size()) spans_[i] = span;
  }
  /// The spans added so far; call when nobody adds any more.
  std::vector<TraceSpan> spans() const {
    const auto n = std::min(used_.load(), spans_.size());
    return {spans_.begin(), spans_.begin() + static_cast<std::ptrdiff_t>(n)};
  }
  std::size_t dropped() const {
    const auto n = used_.load();
    return n > spans_.size() ? n - spans_.size() : 0;
  }

 private:
  std::vector<TraceSpan> spans_;
  std::atomic<std::size_t> used_{0};
  std::int64_t first_ = 0;
  std::int64_t last_ = -1;
};

}  // namespace sidestep
