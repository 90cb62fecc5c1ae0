#include "comm/quorum_agent.h"

#include <fmt/format.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <utility>

#include "comm/close_message.h"
#include "core/base/error.h"

namespace sidestep {
namespace {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<std::uint8_t> directives_of(const JournalLine& line) {
  std::vector<std::uint8_t> bits;
  for (const JournalLine::Rank& rank : line.ranks) {
    const int both = (rank.fresh ? kFresh : 0) | (rank.late_round > 0 ? kLate : 0);
    bits.push_back(static_cast<std::uint8_t>(both));
  }
  return bits;
}

}  // namespace

QuorumAgent::QuorumAgent(CommThread& comm, QuorumLane& lane, const Optimizer& optimizer,
                         const Options& options)
    : comm_(comm),
      lane_(lane),
      optimizer_(optimizer),
      options_(options),
      rank_(comm.rank()),
      ranks_(comm.size()),
      work_(lane.plan().buckets.size()),
      board_(comm.size()) {
  for (const JournalLine& line : options.replay) {
    if (line.ranks.size() != static_cast<std::size_t>(ranks_)) {
      fail(Exit::settings,
           fmt::format("journal, round {}: expected {} ranks, found {}; replay it on "
                       "as many ranks as wrote it",
                       line.round, ranks_, line.ranks.size()));
    }
    replay_[line.round] = line;
  }
}

const JournalLine* QuorumAgent::recorded(std::int64_t round) const {
  const auto it = replay_.find(round);
  return it == replay_.end() ? nullptr : &it->second;
}

void QuorumAgent::fail_with(const std::exception_ptr& cause) {
  if (!failure_) failure_ = cause;
  changed_.notify_all();
}

void QuorumAgent::failed(const std::exception_ptr& cause) noexcept {
  const std::lock_guard lock(mutex_);
  fail_with(cause);
}

bool QuorumAgent::poll(Communicator& control) {
  const std::lock_guard lock(mutex_);
  if (failure_) return false;
  try {
    return turn(control);
  } catch (...) {
    fail_with(std::current_exception());
    throw;
  }
}

bool QuorumAgent::turn(Communicator& control) {
  bool progress = announce(control);
  progress = settle_round() || progress;
  progress = harvest() || progress;
  if (failure_) return true;
  progress = decide(control) || progress;
  progress = serve_close() || progress;
  return deposit(control) || progress;
}

/// Fresh work is announced when it can no longer be long in coming.
bool QuorumAgent::announce(Communicator& control) {
  if (work_.state != State::handed_over) return false;
  const Event& event = options_.early ? work_.committed : work_.complete;
  if (!event.done()) return false;
  event.wait();  // rethrows a failure
  work_.state = State::announced;
  ready_ns_ = now_ns();
  if (!work_.missed) report(control, false);
  return true;
}

/// Tells the coordinator of this rank's work.
void QuorumAgent::report(Communicator& control, bool late) {
  Message message{.kind = MessageKind::arrival, .round = work_.round};
  message.words = {work_.round - 1, work_.samples, work_.stop ? 1 : 0, late ? 1 : 0, 0};
  if (rank_ == 0) {
    arrived(0, message);
  } else {
    control.send(0, message);
  }
}

void QuorumAgent::arrived(int rank, const Message& message) {
  const double now = options_.now ? options_.now() : steady_seconds();
  if (message.words[3] != 0) {
    board_.deposit(rank, message.round, message.words[1] > 0, now);
  } else {
    board_.arrive(rank, message.round, now);
  }
}

bool QuorumAgent::take(const Message& message) {
  if (message.kind != MessageKind::arrival && message.kind != MessageKind::close) return false;
  const std::lock_guard lock(mutex_);
  if (message.kind == MessageKind::close) {
    if (part_of(rank_) == parts_) own_bits_ = bits_of(message, rank_);
    if (++parts_ == parts_for(ranks_)) {
      parts_ = 0;
      received_ = message.round;
      closes_.push_back({message.round, own_bits_});
    }
  } else if (rank_ == 0) {
    arrived(static_cast<int>(message.from), message);
    if (message.words[3] != 0)
      acknowledge_.push_back({static_cast<int>(message.from), message.round});
  } else {
    check(work_.state == State::reporting && work_.round == message.round,
          "a deposit was acknowledged that nobody reported");
    work_.state = State::none;
    changed_.notify_all();
  }
  return true;
}

/// When the open round's header is in, the next one opens.
bool QuorumAgent::settle_round() {
  if (launched_ == newest_closed_) return false;
  const QuorumLane::Slot& slot = lane_.slot(launched_);
  if (!slot.round.header_in.done() || !slot.round.loss_in.done()) return false;
  slot.round.header_in.wait();  // rethrow a failure
  slot.round.loss_in.wait();
  keep(slot);
  const Kept& kept = kept_.back();
  count(kept);
  newest_closed_ = launched_;
  if (rank_ == 0) board_.settle(kept.entries);
  if (options_.closed) options_.closed(kept.result);
  held_ = kept.flush && !info_.last;
  if (info_.last) {
    ended_ = true;
  } else {
    open(launched_ + 1);
  }
  changed_.notify_all();
  return true;
}

void QuorumAgent::open(std::int64_t round) {
  open_ = round;
  info_ = options_.plan(round);
  info_.flush = info_.flush || info_.last;
  if (rank_ != 0) return;
  const JournalLine* const line = recorded(round);
  board_.open(round, info_.rule, info_.flush, options_.now ? options_.now() : steady_seconds(),
              line != nullptr ? directives_of(*line) : std::vector<std::uint8_t>());
}

void QuorumAgent::keep(const QuorumLane::Slot& slot) {
  if (spare_.empty()) spare_.emplace_back();
  Kept& kept = kept_.emplace_back(std::move(spare_.back()));
  spare_.pop_back();
  const std::span<const RankEntry> entries = slot.header.entries();
  kept.entries.assign(entries.begin(), entries.end());
  kept.result = result_of(slot.round, kept.entries);
  kept.result.bytes = lane_.bytes_exchanged();
  kept.flush = info_.flush;
  kept.directives = directives_;
}

void QuorumAgent::count(const Kept& kept) {
  const RankEntry& own = kept.entries[static_cast<std::size_t>(rank_)];
  counts_.applied += own.samples;
  (own.written_off != 0 ? counts_.written_off : counts_.applied) += own.late_samples;
  const JournalLine* const line = recorded(kept.result.step);
  if (line != nullptr && line->weight != kept.result.weight) {
    fail(Exit::settings,
         fmt::format("journal, round {}: expected weight {}, found {}; replay it with the settings "
                     "and data of the run that wrote it",
                     line->round, line->weight, kept.result.weight));
  }
  if (!kept.flush) return;
  check(counts_.produced == counts_.applied + counts_.written_off && counts_.carried == 0,
        "a flush round has left samples behind");
}

/// Rounds whose update is over. A failure there is the same on all ranks: this one falls silent, so
/// that the others come to see it, too.
bool QuorumAgent::harvest() {
  bool progress = false;
  while (finished_ < newest_closed_) {
    const QuorumLane::Slot& slot = lane_.slot(finished_ + 1);
    if (!slot.round.updated.done()) break;
    try {
      slot.round.updated.wait();
    } catch (...) {
      fail_with(std::current_exception());
      return true;
    }
    ++finished_;
    Kept& kept = kept_[static_cast<std::size_t>(finished_ - kept_.front().result.step)];
    kept.result.grad_norm = slot.round.grad_norm;
    exchange_ns_ = slot.done_ns - slot.ready_ns;
    if (rank_ == 0 && options_.journal) write_journal(kept, slot);
    progress = true;
  }
  if (progress) changed_.notify_all();
  return progress;
}

void QuorumAgent::write_journal(const Kept& kept, const QuorumLane::Slot& slot) const {
  JournalLine line{
      .round = kept.result.step, .weight = kept.result.weight, .ranks = {}, .checksum = {}};
  for (std::size_t r = 0; r < kept.entries.size(); ++r) {
    const RankEntry& entry = kept.entries[r];
    line.ranks.push_back({.claimed = entry.begun != 0,
                          .fresh = (kept.directives[r] & kFresh) != 0,
                          .late_round = entry.late_round,
                          .written_off = entry.written_off != 0});
  }
  if (kept.flush) line.checksum = slot.checksum;
  options_.journal(line);
}

/// Rank 0: answers deposits, and closes the open round when its rule holds.
bool QuorumAgent::decide(Communicator& control) {
  if (rank_ != 0) return false;
  for (const auto& [rank, round] : acknowledge_)
    control.send(rank, {.kind = MessageKind::arrival, .round = round});
  acknowledge_.clear();
  if (!board_.closes(options_.now ? options_.now() : steady_seconds())) return false;
  const std::span<const std::uint8_t> directives = board_.close();
  directives_.assign(directives.begin(), directives.end());
  for (int to = 1; to < ranks_; ++to)
    for (int part = 0; part < parts_for(ranks_); ++part)
      control.send(to, close_part(board_.round(), directives, part));
  received_ = board_.round();
  closes_.push_back({board_.round(), directives[0]});
  return true;
}

/// True when this rank cannot launch the round now.
bool QuorumAgent::holds_back(std::int64_t round) const {
  if (round != open_ || held_ || work_.state == State::taking) return true;
  const JournalLine* const line = recorded(round);
  if (line != nullptr && line->ranks[static_cast<std::size_t>(rank_)].claimed &&
      last_taken_ < round)
    return true;
  return finished_ + QuorumLane::kSlots < round;  // its memory is in use
}

bool QuorumAgent::serve_close() {
  if (closes_.empty() || holds_back(closes_.front().round)) return false;
  const Close close = closes_.front();
  closes_.pop_front();
  launch(close);
  return true;
}

void QuorumAgent::launch(const Close& close) {
  const std::int64_t round = close.round;
  QuorumLane::Slot& slot = lane_.slot(round);
  const bool fresh = (close.bits & kFresh) != 0, late = (close.bits & kLate) != 0;
  const bool begun = work_.round == round && work_.state != State::none;
  slot.ready_ns = fresh ? ready_ns_ : now_ns();
  slot.header.clear();
  RankEntry& own = slot.header.entry(rank_);
  own = std::exchange(times_, {});  // once: the rank may miss rounds before it begins another
  own.begun = begun ? 1 : 0;
  slot.header.header().stop_requests = stop_ ? 1 : 0;
  check(!fresh || (begun && work_.state == State::announced && !work_.missed),
        "a round was closed with work that this rank did not announce");
  check(!late || late_.waiting, "a round was closed with late work that this rank does not have");
  if (fresh) give_fresh(slot.header, own);
  if (late) give_late(round, slot.header, own);

  const bool nominal = info_.rule.divisor == Divisor::nominal;
  slot.round.step = round;
  slot.round.nominal = nominal ? info_.nominal : 0;
  slot.round.batch = nominal ? options_.batch : 0;
  slot.round.grad_norm.reset();
  slot.scalars = optimizer_.scalars(info_.lr, info_.update_number);
  const bool fills = late && !late_.written_off;
  const Event sent = lane_.send(slot, {.fresh = fresh ? &work_.grads : nullptr, .fill = fills});
  lane_.apply(slot, readers_, info_.flush);
  launched_ = round;
  if (late) late_ = {};
  if (fresh) {
    consumed_ = sent;
    work_.state = State::none;
  } else if (begun) {
    work_.missed = true;
  }
  changed_.notify_all();
}

void QuorumAgent::give_fresh(HeaderExchange& header, RankEntry& own) {
  const RoundHeader& counted = work_.counted.header();
  RoundHeader& sum = header.header();
  own.samples = work_.samples;
  own.units = work_.units;
  sum.weight += counted.weight;
  sum.correct += counted.correct;
  sum.samples += work_.samples;
  sum.participants += work_.samples > 0 ? 1 : 0;
  sum.flushed += work_.flushed ? 1 : 0;
  sum.index_digest = std::bit_cast<std::int64_t>(work_.index_digest);
  header.loss() = work_.counted.loss();
}

void QuorumAgent::give_late(std::int64_t round, HeaderExchange& header, RankEntry& own) {
  own.late_round = late_.round;
  own.late_samples = late_.samples;
  own.written_off = late_.written_off ? 1 : 0;
  if (late_.written_off) return;
  counts_.carried -= late_.samples;
  RoundHeader& sum = header.header();
  sum.weight += late_.weight;
  sum.index_digest = std::bit_cast<std::int64_t>(std::bit_cast<std::uint64_t>(sum.index_digest) +
                                                 late_.index_digest);
  const float lambda = info_.rule.age_weight;
  if (lambda != 1) lane_.weigh_fill(std::pow(lambda, static_cast<float>(round - late_.round)));
}

/// Late work is deposited when it is complete, so that no round waits for it.
bool QuorumAgent::deposit(Communicator& control) {
  if (work_.state != State::announced || !work_.missed || !work_.complete.done()) return false;
  work_.complete.wait();  // rethrows a failure
  check(!late_.waiting, "late work waits already");
  consumed_ = Event();
  if (work_.samples > 0) {
    const bool carry = work_.info.rule.carry;
    late_ = {.waiting = true,
             .written_off = !carry,
             .round = work_.round,
             .samples = work_.samples,
             .weight = work_.counted.header().weight,
             .index_digest = work_.index_digest};
    if (carry) {
      consumed_ = lane_.deposit();
      counts_.carried += work_.samples;
    }
  }
  report(control, true);
  work_.state = rank_ == 0 ? State::none : State::reporting;
  changed_.notify_all();
  return true;
}

}  // namespace sidestep
