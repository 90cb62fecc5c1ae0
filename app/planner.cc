#include "app/planner.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/error.h"

namespace sidestep {

Planner::Planner(const Config& config)
    : config_(config),
      sampler_(config.dataset_size, config.batch, config.seed, config.shuffle),
      ledger_(config.dataset_size),
      pending_(static_cast<std::size_t>(config.ranks)) {
  for (PlannedRound& round : rounds_) {  // so that a step allocates nothing
    round.shares.reserve(pending_.size());
    round.block.ranges.reserve(1);
  }
}

void Planner::start(const Position& position, std::vector<Range> returned) {
  const std::lock_guard lock(mutex_);
  ledger_.restore(position.cursor, std::move(returned));
  planned_ = settled_ = position.step;
  loading_step_ = position.step + 1;
  seen_ = position.samples_seen;
  committed_ = position;
}

bool Planner::finished() const {
  const std::lock_guard lock(mutex_);
  return planned_ == settled_ && config_.goal.reached(committed_);
}

bool Planner::can_plan(std::int64_t step) const {
  const std::lock_guard lock(mutex_);
  return step <= planned_ || can_plan_next();
}

bool Planner::can_plan_next() const {
  if (planned_ > settled_ && config_.goal.reached(rounds_[static_cast<std::size_t>(planned_ % kKept)].after))
    return false;
  if (planned_ - settled_ >= kKept / 2) return false;
  if (ledger_.fresh() > 0 || !config_.gives_back) return true;
  return planned_ == settled_;
}

const PlannedRound& Planner::round(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  const std::int64_t before = planned_;
  while (planned_ < step) plan_next();
  for (int ahead = 0; ahead < config_.lookahead && planned_ < step + config_.lookahead; ++ahead)
    if (can_plan_next() && ledger_.available() > 0) plan_next();
  if (planned_ != before) changed_.notify_all();
  return slot(step);
}

void Planner::plan_next() {
  check(can_plan_next(), "a round was planned before the results it depends on were in");
  if (ledger_.available() == 0) ledger_.next_epoch();
  PlannedRound& round = slot(planned_ + 1);
  round.step = planned_ + 1;
  const std::int64_t available = ledger_.available();
  config_.policy.plan({.step = round.step,
                       .global_batch = std::min(config_.batch, available),
                       .available = available,
                       .rank = config_.rank,
                       .ranks = config_.ranks},
                      work_);
  round.shares = work_.shares;
  // Rotated: this epoch, rank r plays the part that the even shares give to rank r + epoch.
  if (config_.rotated)
    std::rotate(round.shares.begin(),
                round.shares.begin() + ledger_.cursor().epoch % config_.ranks, round.shares.end());
  round.stop_after_s = work_.stop_after_s;
  const auto own = round.shares.begin() + config_.rank;
  round.own_begin = std::accumulate(round.shares.begin(), own, std::int64_t{0});
  round.own_end = round.own_begin + *own;
  const std::int64_t size = std::accumulate(own, round.shares.end(), round.own_begin);
  ledger_.take(size, round.block);
  round.seen_before = seen_;
  seen_ += size;
  round.hands_out_last = ledger_.available() == 0;
  if (round.hands_out_last && !config_.gives_back) ledger_.next_epoch();
  round.after = {round.step, seen_, ledger_.cursor()};
  ++planned_;
}

void Planner::settle(std::int64_t step, std::span<const RankEntry> entries) {
  const std::lock_guard lock(mutex_);
  check(step == settled_ + 1 && step <= planned_, "results are settled in order");
  const PlannedRound& round = slot(step);
  settled_ = step;
  if (config_.gives_back)
    for (int r = 0; r < config_.ranks; ++r)
      settle_rank(round, r, entries[static_cast<std::size_t>(r)]);
  committed_ = round.after;
  if (config_.gives_back) normalize();
  changed_.notify_all();
}

void Planner::settle_rank(const PlannedRound& round, int rank, const RankEntry& entry) {
  const std::int64_t share = round.shares[static_cast<std::size_t>(rank)];
  const std::int64_t begin =
      std::accumulate(round.shares.begin(), round.shares.begin() + rank, std::int64_t{0});
  Pending& pending = pending_[static_cast<std::size_t>(rank)];
  if (entry.late_round > 0) {
    check(pending.round == entry.late_round, "late work of a round that nobody waits for");
    if (entry.written_off != 0) give_back(pending.ranges);
    pending = {};
  }
  const bool in_flight = entry.begun != 0 && entry.samples == 0 && share > 0;
  slice_.clear();
  round.block.slice(begin + entry.samples, begin + share, slice_);
  if (in_flight && config_.policy.family() == Family::quorum) {
    pending = {round.step, slice_};
  } else {
    give_back(slice_);
  }
}

void Planner::give_back(std::span<const Range> ranges) {
  ledger_.give_back(ranges);
  for (const Range& range : ranges) seen_ -= range.size();
}

/// The position once results are known: an epoch is over when everything was applied.
void Planner::normalize() {
  std::int64_t open = 0;  // handed out in rounds that are not settled
  for (std::int64_t step = settled_ + 1; step <= planned_; ++step) open += slot(step).size();
  committed_.samples_seen = seen_ - open;
  const bool waiting = std::ranges::any_of(pending_, [](const Pending& p) { return p.round > 0; });
  if (planned_ == settled_ && ledger_.available() == 0 && !waiting) {
    ledger_.next_epoch();
    committed_.cursor = ledger_.cursor();
  }
}

Position Planner::committed() const {
  const std::lock_guard lock(mutex_);
  return committed_;
}

std::vector<Range> Planner::returned() const {
  const std::lock_guard lock(mutex_);
  return ledger_.returned_ranges();
}

std::int64_t Planner::unit_at(std::int64_t left) const {
  for (const std::int64_t size : config_.unit_sizes)
    if (size <= left) return size;
  check(false, "no micro-batch is small enough");
  return 0;
}

std::vector<std::int64_t> Planner::units_of(std::int64_t share) const {
  std::vector<std::int64_t> units;
  for (; share > 0; share -= units.back()) units.push_back(unit_at(share));
  return units;
}

bool Planner::next_unit(LoadRequest& request) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || loading_step_ <= planned_; });
  if (closed_) return false;
  const PlannedRound& round = slot(loading_step_);
  const std::int64_t begin = round.own_begin + loading_at_;
  const std::int64_t left = round.own_end - begin;
  const std::int64_t count = left > 0 ? unit_at(left) : 0;
  request.step = loading_step_;
  request.epoch = round.block.epoch;
  request.ids.clear();
  own_ids(sampler_, round, begin, begin + count, request.ids);
  loading_at_ += count;
  if (count == left) {
    ++loading_step_;
    loading_at_ = 0;
  }
  return true;
}

/// SelDP (Tyagi and Swany 2023): the order stays for as many epochs as there are ranks, and in each a
/// rank walks through the next chunk. Chunk v is what the v-th shares of all batches add up to.
std::int64_t Planner::rotated_position(const PlannedRound& round) const {
  const auto v = static_cast<std::size_t>((config_.rank + round.block.epoch) % config_.ranks);
  std::vector<std::int64_t> usual, tail;
  even_shares(config_.batch, config_.ranks, usual);
  even_shares(config_.dataset_size % config_.batch, config_.ranks, tail);
  const std::int64_t full = config_.dataset_size / config_.batch;
  std::int64_t chunk = 0;
  for (std::size_t k = 0; k < v; ++k) chunk += full * usual[k] + tail[k];
  return chunk + round.block.ranges.front().begin / config_.batch * usual[v];
}

void Planner::own_ids(Sampler& sampler, const PlannedRound& round, std::int64_t begin, std::int64_t end,
                      std::vector<std::int64_t>& ids) {
  if (config_.rotated) {
    const std::int64_t at = rotated_position(round) - round.own_begin;
    const std::int64_t epoch = round.block.epoch / config_.ranks * config_.ranks;
    return sampler.append_ids(epoch, at + begin, at + end, ids);
  }
  loading_ranges_.clear();
  round.block.slice(begin, end, loading_ranges_);
  for (const Range& range : loading_ranges_)
    sampler.append_ids(round.block.epoch, range.begin, range.end, ids);
}

std::vector<std::int64_t> Planner::own_samples(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  Sampler sampler(config_.dataset_size, config_.batch, config_.seed, config_.shuffle);
  const PlannedRound& round = slot(step);
  std::vector<std::int64_t> ids;
  own_ids(sampler, round, round.own_begin, round.own_end, ids);
  return ids;
}

void Planner::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace sidestep
