#include "comm/round_engine.h"

#include <fmt/format.h>

#include <bit>
#include <deque>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/accumulator.h"
#include "comm/bucket_updater.h"
#include "comm/reducer.h"
#include "core/base/error.h"

namespace sidestep {
namespace {

/// Waits until the work before the event is over, whatever became of it.
void settle(const Event& event) {
  try {
    event.wait();
  } catch (...) {  // whoever needs the result learns it from its own event
  }
}

}  // namespace

struct RoundEngine::Impl {
  Impl(ParamStore& param_store, const Optimizer& the_optimizer, CommThread& comm_thread,
       Stream& compute_stream, Stream& update_stream, const Options& o)
      : store(param_store),
        optimizer(the_optimizer),
        comm(comm_thread),
        compute(compute_stream),
        update(update_stream),
        options(o),
        plan(plan_buckets(param_store, o.buckets)),
        reducer(plan, o.overlap == Overlap::off,
                [this](int bucket, const Event& ready) { launch(bucket, ready); }),
        updater(param_store, the_optimizer, plan, update_stream, o.clip_norm, o.tracer),
        reduced(plan.buckets.size()),
        updated(plan.buckets.size()) {
    if (o.micro_batches) accumulator.emplace(param_store, compute_stream);
    for (std::size_t i = 0; i < kKept; ++i) {
      slots.emplace_back(comm.size(), plan.buckets.size());
      Slot& slot = slots.back();
      slot.round.header = &slot.header.header();
      slot.round.loss = &slot.header.loss();
      slot.round.scalars = &slot.scalars;
      slot.round.squares = slot.squares.data();
    }
    for (std::size_t b = 0; b < plan.buckets.size(); ++b)
      span_names.push_back(fmt::format("all-reduce bucket {}", b));
  }

  /// What a round needs, kept until its result is no longer asked for.
  struct Slot {
    Slot(int ranks, std::size_t buckets) : header(ranks), squares(buckets) {}
    HeaderExchange header;
    UpdateScalars scalars;
    std::vector<double> squares;
    Round round;
    std::int64_t ready_ns = 0, done_ns = 0;  ///< gradients final here, exchange and update over
  };
  Slot& current() { return slots[started % kKept]; }

  void launch(int bucket, const Event& ready) {
    const auto b = static_cast<std::size_t>(bucket);
    const Bucket& slice = plan.buckets[b];
    View grads = store.grads();
    grads.data += static_cast<std::size_t>(slice.begin) * size_of(grads.dtype);
    grads.shape = Shape{slice.end - slice.begin};
    reduced[b] =
        comm.all_reduce(grads, Reduce::sum, ready, span_names[b].c_str(), current().round.step);
  }

  /// Everything this rank has to say of the round is known once the compute stream is here.
  void launch_header() {
    if (std::exchange(header_launched, true)) return;
    Slot& slot = current();
    const auto in = slot.header.launch(comm, compute.record(), slot.round.step);
    slot.round.header_in = in.header;
    slot.round.loss_in = in.loss;
  }

  ParamStore& store;
  const Optimizer& optimizer;
  CommThread& comm;
  Stream& compute;
  Stream& update;
  const Options options;
  const BucketPlan plan;
  std::deque<Slot> slots;  ///< kKept; addresses stay
  Reducer reducer;
  BucketUpdater updater;
  std::optional<GradAccumulator> accumulator;
  NoSink no_sink;
  std::vector<std::string> span_names;  ///< by bucket
  std::vector<Event> reduced;           ///< by bucket, of the current round
  std::vector<Event> updated;           ///< by bucket, of the last finished round
  Event all_updated;                    ///< of the last finished round
  std::size_t started = 0;              ///< rounds; the current one's number
  std::int64_t exchange_ns = 0;         ///< of the last completed round
  bool open = false;
  bool header_launched = false;
  const int exceptions_at_start = std::uncaught_exceptions();
};

RoundEngine::RoundEngine(ParamStore& store, const Optimizer& optimizer, CommThread& comm,
                         Stream& compute, Stream& update, const Options& options)
    : impl_(std::make_unique<Impl>(store, optimizer, comm, compute, update, options)) {}

RoundEngine::~RoundEngine() {
  // The comm thread and tasks of both streams work on the engine's memory. When an error cuts a
  // round short, peers may never answer.
  Impl& s = *impl_;
  if (s.open || std::uncaught_exceptions() > s.exceptions_at_start) s.comm.give_up();
  settle(s.compute.record());
  settle(s.update.record());
}

void RoundEngine::begin(const RoundStart& start) {
  Impl& s = *impl_;
  check(!s.open, "a round began before the last one was finished");
  ++s.started;
  Impl::Slot& slot = s.current();
  slot.round.updated.wait();  // the round that had this memory
  slot.round.step = start.step;
  slot.round.grad_norm.reset();
  slot.header.clear();
  RankEntry& own = slot.header.entry(s.comm.rank());
  own = start.own;
  own.begun = 1;
  slot.header.header().stop_requests = start.stop ? 1 : 0;
  slot.scalars = s.optimizer.scalars(start.lr, start.update_number);
  s.reducer.begin();
  if (s.accumulator) s.accumulator->begin();
  s.open = true;
  s.header_launched = false;
}

void RoundEngine::add(const View& loss, const View& weight, const View& correct,
                      std::int64_t samples, std::uint64_t index_digest) {
  Impl& s = *impl_;
  check(s.open && !s.header_launched, "a micro-batch outside of a round");
  HeaderExchange& header = s.current().header;
  header.add(s.compute, loss, weight, correct);
  RankEntry& own = header.entry(s.comm.rank());
  own.samples += samples;
  ++own.units;
  header.header().samples += samples;
  header.header().participants = 1;
  header.header().index_digest = std::bit_cast<std::int64_t>(
      std::bit_cast<std::uint64_t>(header.header().index_digest) + index_digest);
}

GradSink& RoundEngine::sink(bool last) {
  Impl& s = *impl_;
  if (!last) return s.no_sink;
  s.launch_header();
  return s.accumulator ? s.accumulator->last_sink(s.reducer) : s.reducer;
}

void RoundEngine::accumulate() {
  check(impl_->accumulator.has_value(), "micro-batches are added up only where they were announced");
  impl_->accumulator->add(impl_->compute);
}

void RoundEngine::cut_short(bool executed) {
  Impl& s = *impl_;
  if (executed) {
    s.current().header.header().flushed = 1;
    s.accumulator->flush(s.compute);
  } else {
    // Without a forward nothing keeps this rank from zeroing gradients that are still in use.
    s.compute.wait(s.all_updated);
    fill_zero(s.compute, s.store.grads());
  }
  s.launch_header();
}

void RoundEngine::begin_local_step(std::int64_t, std::int64_t, double) {
  check(false, "a round of the gradient family is one step");
}

Event RoundEngine::finish() {
  Impl& s = *impl_;
  check(s.open && s.header_launched, "a round was finished without its last micro-batch");
  Impl::Slot& slot = s.current();
  s.compute.host([&slot] { slot.ready_ns = now_ns(); });
  const Event ready = s.compute.record();
  s.reducer.flush(ready);
  s.updater.enqueue(slot.round, s.reduced, s.reducer.last_reads(), s.updated);
  s.update.wait(ready);  // ready_ns is written; buckets may all have been in before
  s.update.host([&slot] { slot.done_ns = now_ns(); });
  slot.round.updated = s.all_updated = s.update.record();
  s.open = false;
  return slot.round.updated;
}

RoundResult RoundEngine::result(std::int64_t step) {
  Impl& s = *impl_;
  for (const Impl::Slot& slot : s.slots) {
    if (slot.round.step != step) continue;
    check(!s.open || &slot != &s.current(), "the round is not finished");
    slot.round.updated.wait();
    s.exchange_ns = slot.done_ns - slot.ready_ns;
    RoundResult result = result_of(slot.round, slot.header.entries());
    result.grad_norm = slot.round.grad_norm;
    result.bytes = static_cast<std::int64_t>(s.store.grads().bytes());
    return result;
  }
  check(false, fmt::format("the result of step {} is not kept", step));
  return {};
}

Event RoundEngine::ready(ParamId p) const {
  const Impl& s = *impl_;
  if (s.options.overlap != Overlap::full) return s.all_updated;
  return s.updated[static_cast<std::size_t>(s.plan.bucket_of[static_cast<std::size_t>(p)])];
}

Event RoundEngine::quiesced() const { return impl_->all_updated; }
std::int64_t RoundEngine::exchange_ns() const { return impl_->exchange_ns; }
const BucketPlan& RoundEngine::plan() const { return impl_->plan; }

std::size_t RoundEngine::bytes() const {
  const Impl& s = *impl_;
  return kKept * s.slots.front().header.bytes() + (s.accumulator ? s.accumulator->bytes() : 0);
}

std::int64_t RoundEngine::inline_wait_ns() const {
  return &impl_->update == &impl_->compute ? impl_->updater.wait_ns() : 0;
}

}  // namespace sidestep
