// The quorum agent's methods for the main thread.
#include <fmt/format.h>

#include "comm/quorum_agent.h"
#include "core/base/error.h"

namespace sidestep {

void QuorumAgent::open_first(std::int64_t first, const Event& master_ready) {
  const std::lock_guard lock(mutex_);
  check(open_ == 0 && first >= 1, "rounds are numbered from 1, and start once");
  first_ = first;
  received_ = launched_ = newest_closed_ = finished_ = last_taken_ = first - 1;
  readable_ = readers_ = master_ready;
  lane_.set_version(first - 1);
  open(first);
}

bool QuorumAgent::claimable() const {
  if (work_.state != State::none || open_ <= last_taken_ || launched_ >= open_) return false;
  if (const JournalLine* const line = recorded(open_))
    return line->ranks[static_cast<std::size_t>(rank_)].claimed;
  return received_ < open_;  // else the round goes on without this rank in any case
}

std::int64_t QuorumAgent::take_round(Stream& compute) {
  std::unique_lock lock(mutex_);
  const Event enqueued = compute.record();
  const auto can_go_on = [&] {
    if (held_) {  // whatever reads the weights of the flush round comes before
      held_ = false;
      readers_ = enqueued;
    }
    return claimable() || (ended_ && work_.state == State::none) || failure_;
  };
  changed_.wait(lock, can_go_on);
  if (failure_) std::rethrow_exception(failure_);
  if (!claimable()) return 0;
  work_.state = State::taking;
  work_.missed = false;
  work_.round = last_taken_ = open_;
  work_.info = info_;
  if (open_ > first_) readable_ = lane_.slot(open_ - 1).round.updated;
  return work_.round;
}

void QuorumAgent::taken(const Event& copied) {
  const std::lock_guard lock(mutex_);
  readers_ = copied;
  work_.state = State::working;
}

void QuorumAgent::begin(const RankEntry& times) {
  const std::lock_guard lock(mutex_);
  check(work_.state == State::working, "a round begins once it is claimed");
  times_ = times;
  stop_ = stop_ || work_.stop;
}

void QuorumAgent::hand_over() {
  {
    const std::lock_guard lock(mutex_);
    check(work_.state == State::working, "a round is finished once");
    counts_.produced += work_.samples;
    work_.state = State::handed_over;
  }
  comm_.wake();
}

bool QuorumAgent::missed() const {
  const std::lock_guard lock(mutex_);
  return work_.state == State::working && work_.missed;
}

RoundResult QuorumAgent::result(std::int64_t step, bool& flushed) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return finished_ >= step || failure_; });
  if (finished_ < step) std::rethrow_exception(failure_);
  while (!kept_.empty() && kept_.front().result.step < step - Engine::kKept) {
    spare_.push_back(std::move(kept_.front()));
    kept_.pop_front();
  }
  check(!kept_.empty() && kept_.front().result.step <= step,
        fmt::format("the result of round {} is not kept", step));
  const Kept& kept = kept_[static_cast<std::size_t>(step - kept_.front().result.step)];
  flushed = kept.flush;
  check(!flushed || held_ || ended_, "a flush round's result is asked for before the next claim");
  return kept.result;
}

std::int64_t QuorumAgent::newest_closed() const {
  const std::lock_guard lock(mutex_);
  return newest_closed_;
}

std::int64_t QuorumAgent::exchange_ns() const {
  const std::lock_guard lock(mutex_);
  return exchange_ns_;
}

QuorumAgent::Counts QuorumAgent::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

bool QuorumAgent::idle() const {
  const std::lock_guard lock(mutex_);
  return launched_ == finished_ && !failure_;
}

}  // namespace sidestep
