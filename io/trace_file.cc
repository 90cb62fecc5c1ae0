#include "io/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <limits>
#include <string_view>
#include <system_error>

#include "core/base/error.h"
#include "io/json_text.h"
#include "io/output_file.h"

namespace sidestep {

namespace {

using Text = fmt::memory_buffer;

constexpr std::size_t kPiece = std::size_t{1} << 20;
constexpr std::array<std::string_view, 5> kRows = {"compute", "update", "communication", "input",
                                                   "saving"};

std::string_view name_of(const RankTrace& trace, std::size_t i) {
  return trace.names.empty() ? std::string_view(trace.spans[i].name) : trace.names[i];
}

/// One line without line breaks, as serialize() needs it.
std::string one_line(std::string_view text) {
  std::string line(text);
  std::ranges::replace(line, '\n', ' ');
  return line;
}

/// Takes numbers and lines off the front of a serialized trace.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}
  template <class T>
  T number() {
    T value{};
    const auto parsed = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    check(
        parsed.ec == std::errc() && parsed.ptr != text_.data() + text_.size() && *parsed.ptr == ' ',
        "a rank's trace is well-formed");
    text_.remove_prefix(static_cast<std::size_t>(parsed.ptr - text_.data()) + 1);
    return value;
  }
  std::string line() {
    const auto newline = text_.find('\n');
    check(newline != std::string_view::npos, "a rank's trace ends with a line break");
    std::string result(text_.substr(0, newline));
    text_.remove_prefix(newline + 1);
    return result;
  }
  bool done() const { return text_.empty(); }

 private:
  std::string_view text_;
};

/// What of a rank goes into the file.
struct Kept {
  std::vector<std::size_t> spans;  ///< in order of their begin
  std::size_t dropped = 0;
  std::int64_t complete_to = 0;  ///< last step of which nothing was dropped
};

Kept choose(const RankTrace& trace, std::size_t most, std::int64_t last_step) {
  check(trace.names.empty() || trace.names.size() == trace.spans.size(), "a name for each span");
  Kept kept;
  kept.complete_to = last_step;
  kept.dropped = trace.dropped;
  kept.spans.resize(trace.spans.size());
  for (std::size_t i = 0; i < kept.spans.size(); ++i) kept.spans[i] = i;
  std::ranges::stable_sort(kept.spans, {}, [&](std::size_t i) { return trace.spans[i].begin_ns; });
  // A full tracer dropped spans from some point in its last step on.
  if (trace.dropped > 0) {
    std::int64_t newest = std::numeric_limits<std::int64_t>::min() + 1;
    for (const TraceSpan& span : trace.spans) newest = std::max(newest, span.step);
    kept.complete_to = std::min(kept.complete_to, newest - 1);
  }
  for (std::size_t k = most; k < kept.spans.size(); ++k)
    kept.complete_to = std::min(kept.complete_to, trace.spans[kept.spans[k]].step - 1);
  if (kept.spans.size() > most) {
    kept.dropped += kept.spans.size() - most;
    kept.spans.resize(most);
  }
  return kept;
}

/// Writes the file in pieces of about kPiece.
class TraceWriter {
 public:
  explicit TraceWriter(const std::filesystem::path& path) : file_(path) {
    text_.reserve(2 * kPiece);
  }

  template <class... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }
  void quoted(std::string_view value) { append_json_text(text_, value); }
  /// Begins an element of the list of events.
  void next() {
    if (text_.size() >= kPiece) write_out();
    text_.append(first_ ? std::string_view("\n") : std::string_view(",\n"));
    first_ = false;
  }
  void name_row(std::string_view kind, int pid, std::size_t tid, std::string_view value) {
    next();
    put(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":)", kind, pid, tid);
    quoted(value);
    put("}}}}");
  }
  void sort_row(std::string_view kind, int pid, std::size_t tid, std::size_t index) {
    next();
    put(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"sort_index":{}}}}})", kind, pid, tid,
        index);
  }
  void publish() {
    write_out();
    file_.publish();
  }

 private:
  void write_out() {
    file_.write({text_.data(), text_.size()});
    text_.clear();
  }

  AtomicFile file_;
  Text text_;
  bool first_ = true;
};

double microseconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-3; }

void write_rank(TraceWriter& out, const RankTrace& trace, const Kept& kept, std::int64_t zero_ns) {
  out.name_row("process_name", trace.rank, 0, fmt::format("rank {} ({})", trace.rank, trace.host));
  out.sort_row("process_sort_index", trace.rank, 0, static_cast<std::size_t>(trace.rank));
  for (std::size_t row = 0; row < kRows.size(); ++row) {
    out.name_row("thread_name", trace.rank, row, kRows[row]);
    out.sort_row("thread_sort_index", trace.rank, row, row);
  }
  for (const std::size_t i : kept.spans) {
    const TraceSpan& span = trace.spans[i];
    out.next();
    out.put(R"({{"ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{"step":{}}},"name":)",
            trace.rank, static_cast<int>(span.row),
            microseconds(span.begin_ns + trace.offset_ns - zero_ns),
            microseconds(std::max<std::int64_t>(0, span.end_ns - span.begin_ns)), span.step);
    out.quoted(name_of(trace, i));
    out.put("}}");
  }
}

struct Held {
  std::int64_t first = 0, last = 0;
  std::size_t spans = 0, dropped = 0;
};

void write_metadata(TraceWriter& out, const std::vector<RankTrace>& ranks,
                    const std::vector<Kept>& kept, std::int64_t last_step, const Held& held) {
  out.put(
      "\"metadata\":{{\"first_step\":{},\"last_step\":{},\"last_complete_step\":{},"
      "\"spans\":{},\"dropped\":{},\"ranks\":[",
      held.first, last_step, held.last, held.spans, held.dropped);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    out.put("{}{{\"rank\":{},\"offset_ns\":{},\"dropped\":{},\"host\":", r == 0 ? "" : ",",
            ranks[r].rank, ranks[r].offset_ns, kept[r].dropped);
    out.quoted(ranks[r].host);
    out.put("}}");
  }
  out.put("]}},\n");
}

}  // namespace

std::string serialize(const RankTrace& trace) {
  Text text;
  fmt::format_to(std::back_inserter(text), "{} {} {} {}\n", trace.rank, trace.offset_ns,
                 trace.dropped, one_line(trace.host));
  for (std::size_t i = 0; i < trace.spans.size(); ++i) {
    const TraceSpan& span = trace.spans[i];
    fmt::format_to(std::back_inserter(text), "{} {} {} {} {}\n", static_cast<int>(span.row),
                   span.begin_ns, span.end_ns, span.step, one_line(name_of(trace, i)));
  }
  return fmt::to_string(text);
}

RankTrace parse_rank_trace(const std::string& text) {
  Scanner in(text);
  RankTrace trace;
  trace.rank = in.number<int>();
  trace.offset_ns = in.number<std::int64_t>();
  trace.dropped = in.number<std::size_t>();
  trace.host = in.line();
  while (!in.done()) {
    TraceSpan span;
    const auto row = in.number<std::size_t>();
    check(row < kRows.size(), "a known row of the trace");
    span.row = static_cast<TraceRow>(row);
    span.begin_ns = in.number<std::int64_t>();
    span.end_ns = in.number<std::int64_t>();
    span.step = in.number<std::int64_t>();
    trace.spans.push_back(span);
    trace.names.push_back(in.line());
  }
  return trace;
}

std::string write_trace(const std::filesystem::path& path, const std::vector<RankTrace>& ranks,
                        std::int64_t first_step, std::int64_t last_step, std::size_t max_spans) {
  const std::size_t share = max_spans / std::max<std::size_t>(1, ranks.size());
  std::vector<Kept> kept;
  Held held{first_step, last_step, 0, 0};
  std::int64_t zero_ns = std::numeric_limits<std::int64_t>::max();
  for (const RankTrace& trace : ranks) {
    kept.push_back(choose(trace, share, last_step));
    const Kept& of_rank = kept.back();
    held.last = std::min(held.last, of_rank.complete_to);
    held.spans += of_rank.spans.size();
    held.dropped += of_rank.dropped;
    if (!of_rank.spans.empty())
      zero_ns = std::min(zero_ns, trace.spans[of_rank.spans[0]].begin_ns + trace.offset_ns);
  }
  held.last = std::max(held.last, first_step - 1);
  TraceWriter out(path);
  out.put("{{\"displayTimeUnit\":\"ms\",\n");
  write_metadata(out, ranks, kept, last_step, held);
  out.put("\"traceEvents\":[");
  for (std::size_t r = 0; r < ranks.size(); ++r) write_rank(out, ranks[r], kept[r], zero_ns);
  out.put("\n]}}\n");
  out.publish();
  const std::string steps = held.last < held.first
                                ? std::string("no complete step")
                                : fmt::format("steps {} to {}", held.first, held.last);
  const std::string left_out =
      held.dropped == 0 ? std::string()
                        : fmt::format(", {} left out (limit reached; asked for steps {} to {})",
                                      held.dropped, first_step, last_step);
  return fmt::format("trace {}: {} of {} ranks, {} spans{}", path.string(), steps, ranks.size(),
                     held.spans, left_out);
}

}  // namespace sidestep
