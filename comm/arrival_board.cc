#include "comm/arrival_board.h"

#include <algorithm>

#include "core/base/error.h"

namespace sidestep {

ArrivalBoard::ArrivalBoard(int ranks)
    : ranks_(static_cast<std::size_t>(ranks)), directives_(ranks_.size()) {}

void ArrivalBoard::open(std::int64_t round, const RoundRule& rule, bool flush, double now,
                        std::span<const std::uint8_t> recorded) {
  check(!open_ && (round_ == 0 || round == round_ + 1), "rounds open one by one, in order");
  check(recorded.empty() || recorded.size() == ranks_.size(), "a journal line covers all ranks");
  round_ = round;
  rule_ = rule;
  flush_ = flush;
  recorded_.assign(recorded.begin(), recorded.end());
  last_arrival_ = now;
  open_ = true;
}

void ArrivalBoard::arrive(int rank, std::int64_t round, double now) {
  Rank& r = ranks_[static_cast<std::size_t>(rank)];
  check(round > r.fresh, "a rank arrived twice for a round");
  r.fresh = round;
  last_arrival_ = now;
}

void ArrivalBoard::deposit(int rank, std::int64_t round, bool work, double now) {
  Rank& r = ranks_[static_cast<std::size_t>(rank)];
  check(round > r.resolved && !r.waiting, "late work is deposited once, and one at a time");
  r.resolved = round;
  r.waiting = work;
  last_arrival_ = now;
}

std::int64_t ArrivalBoard::in_flight(int rank) const {
  const Rank& r = ranks_[static_cast<std::size_t>(rank)];
  return r.begun > r.resolved ? r.begun : 0;
}

/// Work in flight joins the next round at the earliest.
bool ArrivalBoard::age_forbids() const {
  if (rule_.max_age <= 0) return false;
  for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) {
    const std::int64_t begun = in_flight(r);
    if (begun > 0 && round_ + 1 - begun > rule_.max_age) return true;
  }
  return false;
}

bool ArrivalBoard::as_recorded() const {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if ((recorded_[r] & kFresh) != 0 && ranks_[r].fresh != round_) return false;
    if ((recorded_[r] & kLate) != 0 && !ranks_[r].waiting) return false;
  }
  return true;
}

bool ArrivalBoard::closes(double now) const {
  if (!open_) return false;
  if (!recorded_.empty()) return as_recorded();
  int fresh = 0, busy = 0;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].fresh == round_) ++fresh;
    if (in_flight(static_cast<int>(r)) > 0) ++busy;
  }
  const auto all = static_cast<int>(ranks_.size());
  if (fresh == all) return true;
  if (flush_ || age_forbids()) return false;
  if (rule_.initiator >= 0) {
    const Rank& initiator = ranks_[static_cast<std::size_t>(rule_.initiator)];
    return initiator.fresh == round_ || initiator.waiting;
  }
  if (rule_.quorum <= 0 || fresh < rule_.quorum) return false;
  return fresh + busy == all || now - last_arrival_ >= rule_.silence_s;
}

std::span<const std::uint8_t> ArrivalBoard::close() {
  check(open_, "no round is open");
  open_ = false;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    std::uint8_t& directive = directives_[r];
    if (recorded_.empty()) {
      const int bits = (rank.fresh == round_ ? kFresh : 0) | (rank.waiting ? kLate : 0);
      directive = static_cast<std::uint8_t>(bits);
    } else {
      directive = recorded_[r];
    }
    if ((directive & kLate) != 0) rank.waiting = false;
  }
  return directives_;
}

void ArrivalBoard::settle(std::span<const RankEntry> entries) {
  check(!open_ && entries.size() == ranks_.size(), "a header settles a closed round");
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (entries[r].begun != 0 && (directives_[r] & kFresh) == 0) ranks_[r].begun = round_;
  }
}

}  // namespace sidestep
