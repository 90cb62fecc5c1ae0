// The rounds of a rig: how each family of policies runs, ends and reports them.
#include <algorithm>
#include <cmath>
#include <utility>

#include "app/host_view.h"
#include "app/rig.h"
#include "core/base/error.h"

namespace sidestep {

bool Rig::finished() const {
  if (stopped_) return true;
  if (!policy_->leaves_out()) return goal_.reached(enqueued_);
  if (goal_.steps > 0) return enqueued_.step >= goal_.steps;
  return outstanding() == 0 && planner_->finished();
}

int Rig::outstanding() const {
  const std::int64_t newest =
      quorum_ != nullptr ? std::max(enqueued_.step, quorum_->newest_closed()) : 0;
  return static_cast<int>(quorum_ != nullptr ? newest - completed_.step : begun_ - ended_);
}

int Rig::may_lag() const {
  if (quorum_ != nullptr || boundary_(enqueued_)) return 0;
  return policy_->leaves_out() && !planner_->can_plan(enqueued_.step + 1) ? 0 : 1;
}

Rig::Work Rig::work_of(const PlannedRound& round) const {
  return {.step = round.step,
          .share = round.own_end - round.own_begin,
          .stop_after_s = round.stop_after_s};
}

Rig::Pending& Rig::new_pending() {
  check(begun_ - ended_ < 2, "complete() a round before enqueueing a third");
  Pending& pending = pending_[static_cast<std::size_t>(++begun_ % std::ssize(pending_))];
  pending = {};
  if (coverage_) coverage_->begin_round();
  return pending;
}

LoadedBatch Rig::take(std::int64_t step, Pending& pending) {
  for (;;) {  // what earlier rounds did not use is still in the queue
    const LoadedBatch batch = prefetch_->take(pending.input_wait_ns);
    check(batch.step <= step, "the loader is at another step");
    count_classes(batch, batch.step == step);
    if (batch.step == step) return batch;
    prefetch_->release(batch.slot, Event());
  }
}

void Rig::count_classes(const LoadedBatch& batch, bool computed) {
  if (coverage_)
    coverage_->count({batch.y.as<std::int32_t>(), static_cast<std::size_t>(batch.count)}, computed);
}

void Rig::run_unit(const LoadedBatch& batch, int unit, bool last, Pending& pending) {
  const std::int64_t step = batch.step, n = batch.count;
  emulation_->begin_unit(compute_);
  copy(compute_, executor_->input(n, "x"), batch.x);
  copy(compute_, executor_->input(n, "y"), batch.y);
  executor_->forward(compute_, n, &engine_->gate(), step);
  const View loss = executor_->loss(n);
  engine_->add(loss, executor_->weight(n), executor_->correct(n), n, batch.digest);
  copy(compute_, host_view(&pending.unit_loss), loss);
  compute_.host([&pending] { pending.loss += pending.unit_loss; });
  emulation_->pad(compute_, step, unit, batch);
  prefetch_->release(batch.slot, compute_.record());
  executor_->backward(compute_, n, engine_->sink(last), step);
  pending.own_samples += n;
  ++pending.units;
}

/// Time this step has computed for, as the main thread sees it once the stream is idle.
std::int64_t Rig::elapsed_ns(const Pending& pending) const {
  return now_ns() - pending.begin_ns - (executor_->gate_wait_ns() - pending.begin_wait_ns);
}

/// Whether the step's time will be over after the next micro-batch, by the times measured so far.
bool Rig::foresees_end(const Work& work, const Pending& pending, int executed) const {
  const double elapsed = executed > 0 ? static_cast<double>(elapsed_ns(pending)) : 0;
  const double unit = unit_ns_ > 0 ? unit_ns_ : executed > 0 ? elapsed / executed : 0;
  return unit > 0 && elapsed + unit >= work.stop_after_s * 1e9;
}

void Rig::run_step(const Work& work, Pending& pending) {
  emulation_->before_step(work.step);
  compute_.host([this, &pending] {
    pending.begin_ns = now_ns();
    pending.begin_wait_ns = executor_->gate_wait_ns();
  });
  const bool capped = std::isfinite(work.stop_after_s);
  const bool local_steps = model_rule_.update_each_unit;
  std::int64_t left = work.share;
  for (int unit = 0; left > 0; ++unit) {
    const LoadedBatch batch = take(work.step, pending);
    left -= batch.count;
    const bool last = left == 0 || (capped && foresees_end(work, pending, unit));
    begin_timing(pending);
    run_unit(batch, unit, last || local_steps, pending);
    if (local_steps) engine_->end_step();
    if (!last && !local_steps) engine_->accumulate();
    end_timing(pending);
    if (last) break;
    if (capped) {
      compute_.record().wait();
      if (static_cast<double>(elapsed_ns(pending)) >= work.stop_after_s * 1e9) {
        if (!local_steps) engine_->cut_short(true);
        break;
      }
    }
    if (local_steps) engine_->begin_local_step(work.step, local_update(), pending.lr);
  }
  if (work.share == 0) {
    prefetch_->release(take(work.step, pending).slot, Event());
    engine_->cut_short(false);
  }
}

// A micro-batch's time begins when its input is there: a rank that waits for its loader does not compute.
void Rig::begin_timing(Pending& pending) {
  compute_.host([this, &pending] {
    pending.unit_begin_ns = now_ns();
    pending.unit_wait_ns = executor_->gate_wait_ns();
  });
}

void Rig::end_timing(Pending& pending) {
  compute_.host([this, &pending] {
    pending.compute_ns += now_ns() - pending.unit_begin_ns -
                          (executor_->gate_wait_ns() - pending.unit_wait_ns);
  });
}

/// AdamW's count for the next local update: its moments begin anew where an exchange resets them.
std::int64_t Rig::local_update() {
  return model_rule_.local_state == LocalState::reset ? ++updates_in_round_ : ++local_updates_;
}

void Rig::begin_round(const Work& work, Pending& pending, const RoundTerms& terms, bool stop) {
  pending.step = work.step;
  pending.lr = terms.lr;
  engine_->begin({.step = work.step,
                  .update_number = terms.update_number,
                  .lr = terms.lr,
                  .nominal = terms.nominal,
                  .stop = stop,
                  .own = std::exchange(last_times_, {})});
}

void Rig::enqueue(bool stop) {
  switch (policy_->family()) {
    case Family::gradient:
      return enqueue_gradient(stop);
    case Family::model:
      return enqueue_local(stop);
    case Family::quorum:
      return enqueue_claimed(stop);
  }
}

void Rig::enqueue_gradient(bool stop) {
  const PlannedRound& round = planner_->round(enqueued_.step + 1);
  Pending& pending = new_pending();
  const double lr = learning_rate(schedule_, round.seen_before, round.size());
  begin_round(work_of(round), pending, {round.size(), lr, round.step}, stop);
  run_step(work_of(round), pending);
  pending.computed = compute_.record();
  engine_->finish();
  pending.after = enqueued_ = round.after;
  if (!policy_->leaves_out()) planner_->settle(round.step, {});
}

void Rig::enqueue_local(bool stop) {
  Pending& pending = new_pending();
  updates_in_round_ = 0;
  for (std::int64_t done = 1;; ++done) {
    const PlannedRound& round = planner_->round(enqueued_.step + 1);
    const Work work = work_of(round);
    const double lr = learning_rate(schedule_, round.seen_before, round.size());
    if (done == 1) {
      begin_round(work, pending, {round.size(), lr, local_update()}, stop);
    } else {
      pending.step = work.step;
      pending.lr = lr;
      engine_->begin_local_step(work.step, local_update(), lr);
    }
    run_step(work, pending);
    if (!model_rule_.update_each_unit || work.share == 0) engine_->end_step();
    pending.after = enqueued_ = round.after;
    if (!policy_->leaves_out()) planner_->settle(round.step, {});
    const bool voted = model_rule_.vote && engine_->vote_to_end();
    if (voted || done >= model_rule_.steps || boundary_(enqueued_) || goal_.reached(enqueued_)) break;
  }
  pending.computed = compute_.record();
  engine_->finish();
}

void Rig::enqueue_claimed(bool stop) {
  const std::int64_t step = quorum_->claim();
  if (step == 0) {
    stopped_ = true;
    return;
  }
  const PlannedRound& round = planner_->round(step);
  const Work work = work_of(round);
  const RoundInfo& info = quorum_->info();
  Pending& pending = new_pending();
  begin_round(work, pending, {info.nominal, info.lr, info.update_number}, stop);
  enqueued_ = round.after;
  run_step(work, pending);
  pending.computed = compute_.record();
  quorum_->finish();
  // Rounds go on without this thread; what it does next depends on its own work alone.
  pending.computed.wait();
  account(pending);
}

RoundInfo Rig::open_round(std::int64_t step) {
  RoundInfo info{.nominal = 0, .lr = 0, .update_number = step, .flush = true, .last = true, .rule = {}};
  if (planner_->finished()) return info;
  const PlannedRound& round = planner_->round(step);
  info.nominal = round.size();
  info.lr = learning_rate(schedule_, planner_->committed().samples_seen, round.size());
  info.last = closing_ || (goal_.steps > 0 && step >= goal_.steps);
  info.flush = info.last || round.hands_out_last || boundary_(round.after);
  info.rule = policy_->rule(step);
  const std::lock_guard lock(closed_mutex_);
  closed_.push_back({.after = round.after, .lr = info.lr, .last = info.last});
  return info;
}

void Rig::close_round(const RoundResult& result) {
  planner_->settle(result.step, result.entries);
  policy_->observe(result.step, result.entries);
  closing_ = closing_ || result.stop_requests > 0;
  const std::lock_guard lock(closed_mutex_);
  closed_.back().after = planner_->committed();
}

/// A round of this rank is over: its times ride with the next header.
void Rig::account(const Pending& pending) {
  ++ended_;
  last_times_.compute_ns += pending.compute_ns;
  last_times_.compute_units += pending.units;
  last_times_.input_ns += pending.input_wait_ns;
  if (pending.units == 0) return;
  const double unit = static_cast<double>(pending.compute_ns) / static_cast<double>(pending.units);
  unit_ns_ = unit_ns_ > 0 ? 0.8 * unit_ns_ + 0.2 * unit : unit;
  reported_.input_wait_ns += pending.input_wait_ns;
  reported_.compute_ns += pending.compute_ns;
  reported_.own_samples += pending.own_samples;
}

void Rig::wait_computed() const {
  if (quorum_ != nullptr) return;  // enqueue() has waited
  pending_[static_cast<std::size_t>((ended_ + 1) % std::ssize(pending_))].computed.wait();
}

StepReport Rig::complete() {
  check(outstanding() > 0, "complete() without an outstanding round");
  StepReport report;
  if (quorum_ != nullptr) {
    report.round = engine_->result(completed_.step + 1);
    if (report.round.entries[static_cast<std::size_t>(rank_)].written_off != 0) coverage_->write_off();
    const std::lock_guard lock(closed_mutex_);
    report.after = closed_.front().after;
    report.lr = closed_.front().lr;
    stopped_ = stopped_ || closed_.front().last;
    closed_.pop_front();
  } else {
    const Pending& pending = pending_[static_cast<std::size_t>((ended_ + 1) % std::ssize(pending_))];
    report.round = engine_->result(pending.step);
    pending.computed.wait();
    report.after = pending.after;
    report.lr = pending.lr;
    account(pending);
    if (policy_->leaves_out()) {
      planner_->settle(pending.step, report.round.entries);
      report.after = planner_->committed();
    }
    policy_->observe(pending.step, report.round.entries);
    stopped_ = stopped_ || report.round.stop_requests > 0;
  }
  emulation_->observe(report.round.entries);
  last_times_.exchange_ns = engine_->exchange_ns();
  completed_ = report.after;
  report.input_wait_ns = std::exchange(reported_.input_wait_ns, 0);
  report.compute_ns = std::exchange(reported_.compute_ns, 0);
  report.own_samples = std::exchange(reported_.own_samples, 0);
  const std::int64_t now = now_ns();
  report.step_ns = now - last_completed_ns_;
  last_completed_ns_ = now;
  // Waits of a step that is still running are counted with the next report; the sums agree.
  const std::int64_t gate_wait = executor_->gate_wait_ns() + engine_->inline_wait_ns();
  report.exposed_ns = gate_wait - gate_wait_before_;
  gate_wait_before_ = gate_wait;
  last_times_.exposed_ns += report.exposed_ns;
  if (policy_->leaves_out() && outstanding() == 0) enqueued_ = completed_;
  return report;
}

}  // namespace sidestep
