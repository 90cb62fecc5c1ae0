#include "app/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace sidestep {
namespace {

constexpr double kTerminalSeconds = 0.2;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A line of bounded length without heap storage.
class LineBuffer {
 public:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    const auto room = text_.size() - size_;
    const auto result =
        fmt::format_to_n(text_.data() + size_, room, format, std::forward<Args>(args)...);
    size_ += std::min(room, result.size);
  }
  void pad(std::size_t width) {
    while (size_ < std::min(width, text_.size())) text_[size_++] = ' ';
  }
  std::size_t size() const { return size_; }
  const char* data() const { return text_.data(); }

 private:
  std::array<char, 240> text_;
  std::size_t size_ = 0;
};

void add_time(LineBuffer& line, const char* name, double seconds) {
  const auto s = static_cast<std::int64_t>(std::max(0.0, seconds) + 0.5);
  line.add("  {} {}:{:02}:{:02}", name, s / 3600, s / 60 % 60, s % 60);
}

}  // namespace

bool stdout_is_terminal() {
  if (!isatty(STDOUT_FILENO)) return false;
  if (!std::getenv("OMPI_COMM_WORLD_RANK") && !std::getenv("PMIX_RANK")) return true;
  std::error_code error;
  const auto target =
      std::filesystem::read_symlink("/proc/" + std::to_string(getppid()) + "/fd/1", error);
  const std::string name = target.string();
  return !error && (name.starts_with("/dev/pts/") || name.starts_with("/dev/tty"));
}

Progress::Progress(std::FILE* out, const Options& options) : out_(out), options_(options) {
  if (!options_.now) options_.now = steady_seconds;
  if (options_.terminal) options_.every_seconds = kTerminalSeconds;
}

Progress::~Progress() {
  if (width_ == 0) return;
  std::fputc('\n', out_);
  std::fflush(out_);
}

void Progress::update(const ProgressState& state) {
  state_ = state;
  unwritten_ = true;
  const double now = options_.now();
  if (!begun_) {
    begun_ = true;
    begin_time_ = written_time_ = now;
    begin_samples_ = written_samples_ = state.samples_seen;
    begin_step_ = state.step;
    if (options_.every_seconds > 0) return;
  }
  if (now - written_time_ - paused_since_write_ >= options_.every_seconds) write();
}

void Progress::flush() {
  if (unwritten_) write();
}

void Progress::say(std::string_view line) {
  clear();
  std::fwrite(line.data(), 1, line.size(), out_);
  std::fputc('\n', out_);
  std::fflush(out_);
}

void Progress::pause() { paused_at_ = options_.now(); }

void Progress::go_on() {
  const double paused = options_.now() - paused_at_;
  paused_since_write_ += paused;
  paused_ += paused;
}

void Progress::write() {
  const double now = options_.now();
  const double seconds = now - written_time_ - paused_since_write_;
  const auto samples = static_cast<double>(state_.samples_seen - written_samples_);
  LineBuffer line;
  if (options_.terminal) line.add("\r");
  line.add("epoch {}", state_.epoch + 1);
  if (state_.epochs > 0) line.add("/{}", state_.epochs);
  line.add("  step {}", state_.step);
  if (state_.steps > 0) line.add("/{}", state_.steps);
  line.add("  loss {:.4f}  lr {:.3g}", state_.loss, state_.lr);
  if (seconds > 0 && samples > 0) line.add("  {:.0f} samples/s", samples / seconds);
  const double trained = now - begin_time_ - paused_;
  add_time(line, "elapsed", now - begin_time_);
  if (state_.steps > 0 && state_.step > begin_step_) {
    const double per_step = trained / static_cast<double>(state_.step - begin_step_);
    add_time(line, "ETA", per_step * static_cast<double>(state_.steps - state_.step));
  }
  const std::size_t width = line.size();
  if (options_.terminal) {
    line.pad(width_);  // what is left of a longer line before
    width_ = width;
  } else {
    line.add("\n");
  }
  std::fwrite(line.data(), 1, line.size(), out_);
  std::fflush(out_);
  unwritten_ = false;
  written_time_ = now;
  paused_since_write_ = 0;
  written_samples_ = state_.samples_seen;
}

void Progress::clear() {
  if (width_ == 0) return;
  LineBuffer blank;
  blank.add("\r");
  blank.pad(width_);
  blank.add("\r");
  std::fwrite(blank.data(), 1, blank.size(), out_);
  width_ = 0;
}

}  // namespace sidestep
