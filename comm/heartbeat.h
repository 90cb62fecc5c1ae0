// Signs of life between the ranks: each rank tells rank 0 every second, and rank 0 tells everyone,
// how far it is; who falls silent or stops moving is named, and a lost rank ends the job. An agent
// of the comm thread; the main thread only reports its progress.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/comm_agent.h"

namespace sidestep {

/// What the main thread of a rank is doing. `start`, `save` and `evaluate` may take as long as they
/// like without a step; after `end` nobody waits for signs of life any more.
enum class Phase : std::uint8_t { start, input, compute, exchange, save, evaluate, end };
const char* to_string(Phase phase);

/// Exit::settings, naming the three options, unless late < stalled < lost among those that are on
/// (seconds; 0: off).
void check_limits(double late, double stalled, double lost);

/// Rank 0 watches all ranks, the others only whether rank 0 is heard.
/// late: a rank was not heard for that long, or has changed neither step nor phase (but for waiting
///   in `exchange`) while all were heard: a warning, once until it is back.
/// stalled: no rank's step has advanced for that long: a warning of rank 0's that names the rank
///   furthest behind.
/// lost: a rank was not heard for that long: poll() throws Exit::communication.
/// A rank that itself was not polled for half the smallest limit gives the others their full time
/// again.
class Heartbeat final : public CommAgent {
 public:
  struct Options {
    double late_s = 30, stalled_s = 60, lost_s = 120;  ///< 0: off
    double every_s = 1;                                ///< between two signs of life
    std::function<std::int64_t()> now_ns = {};         ///< steady; empty: the steady clock
  };
  /// `hosts` by rank. Add it to the comm thread at about the same time on all ranks.
  Heartbeat(int rank, std::vector<std::string> hosts, Options options);

  /// Main thread, as often as it likes. `end` is sent at the next poll, at the latest when the
  /// agent is removed.
  void set_progress(std::int64_t step, Phase phase);

  bool poll(Communicator& control) override;
  bool take(const Message& message) override;
  int idle_us() const override;

 private:
  struct Progress {
    std::int64_t step = 0;
    Phase phase = Phase::start;
    bool operator==(const Progress&) const = default;
  };
  /// What is known of one rank; times in ns of the clock.
  struct Peer {
    Progress at;
    std::int64_t heard = 0;    ///< last sign of life
    std::int64_t changed = 0;  ///< last change of step or phase
    std::int64_t stepped = 0;  ///< last change of step; a phase without steps counts as one
    bool silent = false;       ///< warned of, like the next
    bool stuck = false;
  };

  void restart(std::int64_t now);
  void note_gap(std::int64_t now);
  void send(Communicator& control, const Progress& own, std::int64_t now);
  void update(Peer& peer, int rank, const Progress& at, std::int64_t now);
  void judge(Peer& peer, int rank, std::int64_t now);
  void judge_progress(Peer& peer, int rank, std::int64_t now);
  void judge_all(std::int64_t now);
  std::string name(int rank) const;
  std::string where(const Peer& peer) const;

  const int rank_;
  const std::vector<std::string> hosts_;
  const Options options_;
  std::atomic<std::int64_t> progress_{0};  ///< step * 256 + phase: one word, so that they match
  std::vector<Peer> peers_;                ///< by rank; the comm thread's, like the rest
  bool begun_ = false;
  bool stalled_ = false;  ///< warned of
  std::int64_t stalled_since_ = 0;
  std::int64_t last_poll_ = 0;
  std::int64_t next_send_ = 0;
  std::int64_t sent_ = 0;
};

}  // namespace sidestep
