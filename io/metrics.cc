#include "io/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/trace.h"
#include "io/json_text.h"
#include "io/output_file.h"

namespace sidestep {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 16;
constexpr std::int64_t kFlushNs = 1'000'000'000;

using Text = fmt::memory_buffer;

/// Puts together one line of JSON, field by field.
class Line {
 public:
  explicit Line(Text& text) : text_(text) { text_.push_back('{'); }
  void field(std::string_view name, std::int64_t value) { put(name, "{}", value); }
  void field(std::string_view name, double value) {
    if (std::isfinite(value))
      put(name, "{}", value);
    else
      null(name);  // JSON has no NaN
  }
  template <class T>
  void field(std::string_view name, const std::optional<T>& value) {
    if (value)
      field(name, *value);
    else
      null(name);
  }
  template <class T>
  void list(std::string_view name, std::span<const T> values) {
    key(name);
    fmt::format_to(std::back_inserter(text_), "[{}]", fmt::join(values, ","));
  }
  void digest(std::string_view name, std::uint64_t value) { put(name, "\"{:016x}\"", value); }
  void text(std::string_view name, std::string_view value) {
    key(name);
    append_json_text(text_, value);
  }
  void end() { text_.append(std::string_view("}\n")); }

 private:
  void key(std::string_view name) {
    if (!first_) text_.push_back(',');
    first_ = false;
    fmt::format_to(std::back_inserter(text_), "\"{}\":", name);
  }
  void null(std::string_view name) {
    key(name);
    text_.append(std::string_view("null"));
  }
  template <class T>
  void put(std::string_view name, fmt::format_string<const T&> format, const T& value) {
    key(name);
    fmt::format_to(std::back_inserter(text_), format, value);
  }

  Text& text_;
  bool first_ = true;
};

/// The step a line belongs to; nothing if it is no line of ours.
std::optional<std::int64_t> step_of_line(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  for (const char* name : {"step", "last_step", "round"})
    if (const auto it = json.find(name); it != json.end() && it->is_number_integer())
      return it->get<std::int64_t>();
  return std::nullopt;
}

void drop_later_lines(const fs::path& path, std::int64_t step) {
  std::ifstream in(path);
  if (!in) return;  // nothing yet; another cause is reported when it is opened for appending
  AtomicFile kept(path);
  std::string text;
  for (std::string line; std::getline(in, line);) {
    const auto of_line = step_of_line(line);
    if (in.eof() || !of_line || *of_line > step) continue;  // eof: no newline, cut off by a kill
    text += line;
    text += '\n';
    if (text.size() < kBuffer) continue;
    kept.write(text);
    text.clear();
  }
  kept.write(text);
  kept.publish();
}

}  // namespace

struct MetricsFile::Impl {
  fs::path path;
  int file = -1;
  Text text;
  std::int64_t flushed_ns = 0;

  void flush() {
    std::size_t done = 0;
    while (done < text.size()) {
      const ssize_t n = ::write(file, text.data() + done, text.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        const int error = n < 0 ? errno : ENOSPC;
        // The lines so far written must not be written again by a later flush.
        text.clear();
        fail(Exit::checkpoint,
             fmt::format("cannot write {}: {}; free space, or choose another --out", path.string(),
                         std::generic_category().message(error)));
      }
      done += static_cast<std::size_t>(n);
    }
    text.clear();
    flushed_ns = now_ns();
  }

  void flush_when_due() {
    if (text.size() > kBuffer / 2 || now_ns() - flushed_ns >= kFlushNs) flush();
  }
};

MetricsFile::MetricsFile(fs::path path, std::optional<std::int64_t> resumed_step)
    : impl_(std::make_unique<Impl>()) {
  if (resumed_step) drop_later_lines(path, *resumed_step);
  impl_->path = std::move(path);
  impl_->file = ::open(impl_->path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (impl_->file < 0)
    fail(Exit::checkpoint,
         fmt::format("cannot write {}: {}; check that the folder may be written",
                     impl_->path.string(), std::generic_category().message(errno)));
  impl_->text.reserve(kBuffer);
}

MetricsFile::~MetricsFile() {
  try {
    impl_->flush();
  } catch (const Error& error) {
    log_warning(error.what());
  }
  ::close(impl_->file);
}

void MetricsFile::write(const StepMetrics& m) {
  Line line(impl_->text);
  line.field("step", m.step);
  line.field("epoch", m.epoch);
  line.field("samples_seen", m.samples_seen);
  line.field("samples", m.samples);
  line.field("weight", m.weight);
  line.field("loss", m.loss);
  line.field("accuracy", m.accuracy);
  line.field("lr", m.lr);
  line.field("grad_norm", m.grad_norm);
  line.field("participants", m.participants);
  line.digest("index_digest", m.index_digest);
  line.field("seconds", m.seconds);
  line.field("input_wait_seconds", m.input_wait_seconds);
  line.field("exposed_seconds", m.exposed_seconds);
  line.field("bytes", m.bytes);
  line.field("late_samples", m.late_samples);
  line.field("written_off", m.written_off);
  line.field("flushed", m.flushed);
  line.list("rank_samples", m.rank_samples);
  line.list("ages", m.ages);
  line.list("delayed", m.delayed);
  line.field("eval_loss", m.eval_loss);
  line.field("eval_accuracy", m.eval_accuracy);
  line.field("eval_correct", m.eval_correct);
  line.field("eval_samples", m.eval_samples);
  line.end();
  impl_->flush_when_due();
}

void MetricsFile::write(const RankMetrics& m) {
  Line line(impl_->text);
  line.field("first_step", m.first_step);
  line.field("last_step", m.last_step);
  line.field("rank", std::int64_t{m.rank});
  line.text("host", m.host);
  line.field("compute_seconds", m.compute_seconds);
  line.field("input_wait_seconds", m.input_wait_seconds);
  line.field("exposed_seconds", m.exposed_seconds);
  line.field("save_seconds", m.save_seconds);
  line.field("samples", m.samples);
  line.field("exchange_seconds", m.exchange_seconds);
  line.field("micro_batches", m.micro_batches);
  line.field("step_median_seconds", m.step_median_seconds);
  line.text("state", m.state);
  line.end();
  impl_->flush_when_due();
}

void MetricsFile::write_line(std::string_view json) {
  impl_->text.append(json);
  impl_->text.push_back('\n');
  impl_->flush_when_due();
}

void MetricsFile::flush() { impl_->flush(); }

}  // namespace sidestep
