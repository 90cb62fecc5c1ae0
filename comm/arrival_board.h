// Who has arrived for the open round of the quorum family, and when the round closes. Pure: time is
// passed in. Held by the coordinator (rank 0); comm thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/round_header.h"
#include "comm/sync_policy.h"

namespace sidestep {

/// What the closing of a round says of a rank: bits of one number.
inline constexpr std::uint8_t kFresh = 1;  ///< its gradient of this round is in the sum
inline constexpr std::uint8_t kLate = 2;  ///< its deposited late work is in the sum, or written off

class ArrivalBoard {
 public:
  explicit ArrivalBoard(int ranks);

  /// From now on `round` (the one after the last) gathers. `flush`: all ranks must arrive, whatever
  /// the rule. `recorded`: directives by rank of a journal; the round closes with exactly these.
  void open(std::int64_t round, const RoundRule& rule, bool flush, double now,
            std::span<const std::uint8_t> recorded = {});
  /// The rank's gradient of `round` is (or is about to be) final. One that comes after its round
  /// was closed changes nothing: the rank will deposit it.
  void arrive(int rank, std::int64_t round, double now);
  /// The rank has finished work of `round`, which was closed without it. `work`: there were
  /// samples.
  void deposit(int rank, std::int64_t round, bool work, double now);
  /// True when the open round should close now.
  bool closes(double now) const;
  /// Closes it: directives by rank, valid until the next open().
  std::span<const std::uint8_t> close();
  /// The header of the closed round: who had begun it without being in it is in flight.
  void settle(std::span<const RankEntry> entries);

  std::int64_t round() const { return round_; }
  /// The earlier round that the rank still works on; 0 if there is none.
  std::int64_t in_flight(int rank) const;

 private:
  struct Rank {
    std::int64_t fresh = 0;     ///< the last round that it arrived for
    std::int64_t begun = 0;     ///< the last round that was closed while it worked on it
    std::int64_t resolved = 0;  ///< the last such round that it has deposited
    bool waiting = false;       ///< deposited work waits for a close
  };
  bool age_forbids() const;
  bool as_recorded() const;

  std::vector<Rank> ranks_;
  std::vector<std::uint8_t> directives_;
  std::vector<std::uint8_t> recorded_;
  RoundRule rule_;
  bool flush_ = false;
  bool open_ = false;
  std::int64_t round_ = 0;
  double last_arrival_ = 0;
};

}  // namespace sidestep
