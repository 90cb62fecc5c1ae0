// The progress line of rank 0: on a terminal one line that is written over, in a file whole lines
// at intervals. Main thread. update() allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string_view>

namespace sidestep {

struct ProgressState {
  std::int64_t epoch = 0, epochs = 0;  ///< epoch counts from 0; epochs 0: not known
  std::int64_t step = 0, steps = 0;    ///< steps done and to do; steps 0: not known
  std::int64_t samples_seen = 0;       ///< over all epochs and ranks
  double loss = 0, lr = 0;
};

/// True if what this process writes to stdout ends on a terminal. Under mpirun a rank's stdout
/// always looks like one (a pty), so there the launcher's stdout decides.
bool stdout_is_terminal();

class Progress {
 public:
  struct Options {
    bool terminal = false;
    double every_seconds = 10;  ///< between lines in a file; a terminal is redrawn more often
    double (*now)() = nullptr;  ///< seconds on a steady clock; null: the system's
  };
  /// `out` outlives this.
  Progress(std::FILE* out, const Options& options);
  /// Leaves the cursor on a fresh line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Call after each step; writes only when it is time. The rate is over the steps since the last
  /// writing, the ETA over those since the first call, so neither counts warm-up or earlier runs.
  void update(const ProgressState& state);
  /// Writes now, if anything is unwritten: at an epoch's end and at the end of the run.
  void flush();
  /// A line of its own (an evaluation's result), on a terminal in place of the progress line.
  void say(std::string_view line);
  /// Call when time passed that is no training (evaluation), so that the rate leaves it out.
  void pause();
  void go_on();

 private:
  void write();
  void clear();

  std::FILE* out_;
  Options options_;
  ProgressState state_;
  bool begun_ = false, unwritten_ = false;
  double begin_time_ = 0, written_time_ = 0, paused_at_ = 0, paused_since_write_ = 0, paused_ = 0;
  std::int64_t begin_samples_ = 0, begin_step_ = 0, written_samples_ = 0;
  std::size_t width_ = 0;  ///< characters of the line on the terminal
};

}  // namespace sidestep
