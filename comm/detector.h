// Finds slow ranks from the times that ride with each round's header: the classes of section 6.4 of
// the literature map, with hysteresis. Fed by one thread (main) with the same entries on every
// rank, so that all ranks decide alike. Pure: no clock, no messages. observe() allocates only for
// an event.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/round_header.h"

namespace sidestep {

/// In order of weight: a rank that fits several has the last of them.
enum class RankState : std::uint8_t { calm, jitter, loader, slow, link };

const char* to_string(RankState state);

/// A change of state that is worth a line in the log. Times in seconds.
struct DetectorEvent {
  std::int64_t step = 0;
  int rank = -1;  ///< -1: all ranks (link: the exchange; slow or calm: the fleet)
  RankState state = RankState::calm;
  RankState before = RankState::calm;
  bool fleet = false;  ///< several ranks are slow at once
  /// What was measured for the rank: the median of a micro-batch's compute time (jitter: its 90th
  /// percentile), of the wait for input in a step, or of a transfer. A fleet: its slowest rank.
  double own_s = 0;
  double group_s = 0;  ///< median over ranks; loader: over the others; link: the baseline
  std::int64_t since_step = 0;
};

/// Over the last `window` rounds, with c_i the compute time of a micro-batch on rank i and medians
/// over ranks taken as the lower one (so that half of the ranks may be slow):
///   slow    median c_i > 1.15 times the ranks' median, and c_i > 1.15 times its round's median
///           in at least 80 % of the rounds
///   jitter  90th percentile of c_i > 1.15 times its median and so in less than half of the rounds;
///           or slow by its median and too often for that, but not persistently
///   loader  median wait for input > 15 % of the median compute time of a step, and more than twice
///           the others'
///   link    the exchange of the rank that came last (it waits for nobody, so that is the transfer
///           alone) takes 20 % longer than in the last 500 rounds that were free of this, and
///           longer by 5 % of a step's compute time
///   fleet   two ranks or more are slow
/// Each also needs 0.5 ms a step. A link is blamed on no rank: all ranks see the same durations.
/// A change needs `up` decisions in a row to a heavier state and `down` to a lighter one.
///
/// The map's 64 steps with a decision every 32 find 79 % of its S7 (bursts of about 120 steps)
/// before they end, 98 steps after they begin; 32 and 16 find 98 %, after 48 steps, with no false
/// alarm.
class Detector {
 public:
  struct Options {
    int ranks = 1;
    int window = 32;  ///< rounds in a rank's ring
    int every = 16;   ///< rounds between decisions
    double slow = 1.15;
    double persistent = 0.8;
    int up = 2, down = 4;     ///< decisions in a row that change a state
    double least_s = 0.0005;  ///< differences below this are nothing, a step
  };
  explicit Detector(const Options& options);
  ~Detector();

  /// After each completed round, an entry for each rank; at most one decision a call. Entries
  /// without compute units hold no measurement and are left out.
  void observe(std::int64_t step, std::span<const RankEntry> entries);
  /// Changes since the last call.
  std::vector<DetectorEvent> take_events();
  /// -1: the exchange, link or calm.
  RankState state(int rank) const;
  /// Lateness of a rank in the window of the last decision: median of max_j d_j - d_i over the
  /// rounds, d the exchange's duration as each rank sees it. Seconds.
  double lateness_s(int rank) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// One line that names rank, host, phase and numbers: "rank 1 on node3 is slow since step 320: 41.2
/// ms a micro-batch in compute, the median of all ranks is 20.4 ms".
std::string describe(const DetectorEvent& event, const std::string& host);

}  // namespace sidestep
