#include "comm/local_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/accumulator.h"
#include "comm/model_exchange.h"
#include "comm/update_numbers.h"
#include "core/base/error.h"
#include "core/optim/norm.h"

namespace sidestep {
namespace {

/// Waits until the work before the event is over, whatever became of it.
void settle(const Event& event) {
  try {
    event.wait();
  } catch (...) {  // whoever needs the result learns it from its own event
  }
}

/// What the streams and the comm thread read and write of one local step: in pinned memory.
struct StepNumbers {
  UpdateScalars scalars;
  double squares = 0;       ///< of the summed gradient
  std::int64_t weight = 0;  ///< samples (tokens) of the step
  std::int64_t vote = 0;    ///< 1: exchange; the greatest of all ranks' once voted
};

}  // namespace

struct LocalEngine::Impl {
  Impl(ParamStore& param_store, const Optimizer& the_optimizer, CommThread& comm_thread,
       Stream& compute_stream, Stream& update_stream, const Options& o)
      : store(param_store),
        optimizer(the_optimizer),
        comm(comm_thread),
        compute(compute_stream),
        update(update_stream),
        options(o),
        exchange(param_store, comm_thread, update_stream, o.rule, o.buckets),
        voter(o.vote),
        steps(static_cast<std::size_t>(std::max<std::int64_t>(kStepsAhead, o.vote_lag + 2))),
        pinned(Device{}, kKept * kLine + steps.size() * kLine, Buffer::Kind::pinned),
        updated(exchange.plan().buckets.size()) {
    static_assert(sizeof(StepNumbers) <= kLine && sizeof(ModelExchange::Numbers) <= kLine);
    if (o.micro_batches) accumulator.emplace(param_store, compute_stream);
    std::byte* memory = pinned.data();
    for (std::size_t i = 0; i < kKept; ++i, memory += kLine)
      slots.emplace_back(comm.size(), updated.size(), new (memory) ModelExchange::Numbers);
    for (Step& step : steps) {
      step.numbers = new (memory) StepNumbers;
      memory += kLine;
    }
    name_extras();
  }

  static constexpr std::size_t kLine = 64;
  static constexpr std::int64_t kStepsAhead = 4;  ///< enqueued local steps that may be unfinished

  /// What a round needs, kept until its result is no longer asked for.
  struct Slot {
    Slot(int ranks, std::size_t buckets, ModelExchange::Numbers* the_numbers)
        : header(ranks), squares(buckets), numbers(the_numbers) {
      round.header = &header.header();
      round.loss = &header.loss();
      round.squares = squares.data();
    }
    HeaderExchange header;
    std::vector<double> squares;
    ModelExchange::Numbers* numbers;
    Round round;
    std::int64_t local_steps = 0;
    std::int64_t votes = 0;
    std::int64_t ready_ns = 0, done_ns = 0;  ///< own updates done here, exchange over
  };
  struct Step {
    StepNumbers* numbers = nullptr;
    std::int64_t step = 0;
    std::int64_t samples = 0;
    Event updated, voted;
  };
  Slot& current() { return slots[rounds % kKept]; }
  Step& current_step() { return steps[taken % steps.size()]; }

  void name_extras();
  void judge(const Step& step) const;
  void launch_vote(Step& step);
  void mark(std::int64_t step);
  void trace(const char* name, std::int64_t step);

  ParamStore& store;
  const Optimizer& optimizer;
  CommThread& comm;
  Stream& compute;
  Stream& update;
  const Options options;
  ModelExchange exchange;
  SelSyncVote voter;        ///< the update stream's
  std::deque<Slot> slots;   ///< kKept; addresses stay
  std::vector<Step> steps;  ///< the last ones, in turn
  Buffer pinned;
  std::optional<GradAccumulator> accumulator;
  NoSink no_sink;
  std::vector<std::string> extra_names;
  std::vector<Extra> extras;
  std::vector<Event> updated;  ///< by bucket: what the next forward waits for
  Event all_updated;
  std::size_t rounds = 0;          ///< begun; the current one's number
  std::size_t taken = 0;           ///< local steps begun; the current one's number
  std::int64_t since_reset = 0;    ///< own updates since the optimizer's slots were zeroed
  std::int64_t exchange_ns = 0;    ///< of the last completed round
  std::int64_t span_begin_ns = 0;  ///< the update stream's
  bool open = false;
  bool in_step = false;
  bool shown = false;
  const int exceptions_at_start = std::uncaught_exceptions();
};

void LocalEngine::Impl::name_extras() {
  const ModelRule& rule = options.rule;
  const int kept = rule.local_state == LocalState::keep ? store.slots() : 0;
  for (int i = 0; i < kept; ++i) extra_names.push_back("slot:" + store.slot_name(i));
  for (int i = 0; i < kept; ++i)
    extras.push_back({extra_names[static_cast<std::size_t>(i)].c_str(), store.slot(i), true});
  if (rule.elastic) extras.push_back({"weights", exchange.common(), true});
  if (exchange.outer().has_momentum())
    extras.push_back({"outer_momentum", exchange.outer().momentum(), false});
}

/// The step's own gradient is known: divisor, clipping.
void LocalEngine::Impl::judge(const Step& step) const {
  StepNumbers& n = *step.numbers;
  if (!std::isfinite(n.squares)) {
    check_finite(n.squares, store, store.grads(), store.order(),
                 fmt::format("the gradient of rank {}", comm.rank()), step.step);
  }
  const auto divisor = static_cast<double>(n.weight);
  set_divisor(n.scalars, divisor);
  if (options.clip_norm > 0) clip(n.scalars, n.squares, divisor, options.clip_norm);
}

/// Ranks vote while they update.
void LocalEngine::Impl::launch_vote(Step& step) {
  const bool updates = step.samples > 0;
  update.host([this, updates, n = step.numbers] {
    const auto weight = static_cast<double>(n->weight);
    n->vote = updates && voter.vote(weight > 0 ? n->squares / (weight * weight) : 0) ? 1 : 0;
  });
  const View vote{reinterpret_cast<std::byte*>(&step.numbers->vote), Shape{1}, DType::i64,
                  Device{}};
  step.voted = comm.all_reduce(vote, Reduce::max, update.record(), "all-reduce vote", step.step);
  ++current().votes;
}

void LocalEngine::Impl::mark(std::int64_t step) {
  if (options.tracer == nullptr || !options.tracer->wants(step)) return;
  update.host([this] { span_begin_ns = now_ns(); });
}

void LocalEngine::Impl::trace(const char* name, std::int64_t step) {
  if (options.tracer == nullptr || !options.tracer->wants(step)) return;
  update.host([this, name, step] {
    options.tracer->add({name, span_begin_ns, now_ns(), step, TraceRow::update});
  });
}

LocalEngine::LocalEngine(ParamStore& store, const Optimizer& optimizer, CommThread& comm,
                         Stream& compute, Stream& update, const Options& options)
    : impl_(std::make_unique<Impl>(store, optimizer, comm, compute, update, options)) {}

LocalEngine::~LocalEngine() {
  // The comm thread and tasks of both streams work on the engine's memory. When an error cuts a
  // round short, peers may never answer.
  Impl& s = *impl_;
  if (s.open || std::uncaught_exceptions() > s.exceptions_at_start) s.comm.give_up();
  settle(s.compute.record());
  settle(s.update.record());
  for (const Impl::Step& step : s.steps) settle(step.voted);
}

void LocalEngine::begin(const RoundStart& start) {
  Impl& s = *impl_;
  check(!s.open && !s.shown, "a round began before the last one was finished and hidden");
  ++s.rounds;
  Impl::Slot& slot = s.current();
  slot.round.updated.wait();  // the round that had this memory
  s.exchange.begin();
  slot.round.step = -1;
  slot.header.clear();
  RankEntry& own = slot.header.entry(s.comm.rank());
  own = start.own;
  own.begun = 1;
  slot.header.header().stop_requests = start.stop ? 1 : 0;
  slot.numbers->local_lr = start.lr;
  slot.local_steps = slot.votes = 0;
  s.open = true;
  begin_local_step(start.step, start.update_number, start.lr);
}

void LocalEngine::begin_local_step(std::int64_t step, std::int64_t update_number, double lr) {
  Impl& s = *impl_;
  check(s.open && !s.in_step, "a local step began outside of a round or inside another step");
  ++s.taken;
  Impl::Step& mine = s.current_step();
  mine.updated.wait();  // the step that had this memory
  mine.voted.wait();
  mine.step = step;
  mine.samples = 0;
  // AdamW's bias correction belongs to the age of its slots.
  const bool resets = s.options.rule.local_state == LocalState::reset;
  mine.numbers->scalars = s.optimizer.scalars(lr, resets ? s.since_reset + 1 : update_number);
  const RoundHeader* header = &s.current().header.header();
  s.compute.host([n = mine.numbers, header] { n->weight = -header->weight; });
  if (s.accumulator) s.accumulator->begin();
  s.in_step = true;
}

void LocalEngine::add(const View& loss, const View& weight, const View& correct,
                      std::int64_t samples, std::uint64_t index_digest) {
  Impl& s = *impl_;
  check(s.in_step, "a micro-batch outside of a step");
  HeaderExchange& header = s.current().header;
  header.add(s.compute, loss, weight, correct);
  RankEntry& own = header.entry(s.comm.rank());
  own.samples += samples;
  ++own.units;
  s.current_step().samples += samples;
  header.header().samples += samples;
  header.header().participants = 1;
  header.header().index_digest = std::bit_cast<std::int64_t>(
      std::bit_cast<std::uint64_t>(header.header().index_digest) + index_digest);
}

GradSink& LocalEngine::sink(bool last) {
  Impl& s = *impl_;
  if (last && s.accumulator) return s.accumulator->last_sink(s.no_sink);
  return s.no_sink;
}

void LocalEngine::accumulate() {
  check(impl_->accumulator.has_value(),
        "micro-batches are added up only where they were announced");
  impl_->accumulator->add(impl_->compute);
}

void LocalEngine::cut_short(bool executed) {
  Impl& s = *impl_;
  if (!executed) return;  // end_step() sees that there were no samples
  s.current().header.header().flushed = 1;
  s.accumulator->flush(s.compute);
}

void LocalEngine::end_step() {
  Impl& s = *impl_;
  check(s.in_step, "a step ended that had not begun");
  Impl::Step& step = s.current_step();
  const RoundHeader* header = &s.current().header.header();
  s.compute.host([n = step.numbers, header] { n->weight += header->weight; });
  s.update.wait(s.compute.record());
  const bool updates = step.samples > 0;
  if (updates) {
    sum_of_squares(s.update, s.store.grads(), &step.numbers->squares);
    s.update.host([&s, &step] { s.judge(step); });
  }
  if (s.options.rule.vote) s.launch_vote(step);
  if (updates) {
    s.mark(step.step);
    s.optimizer.update(s.update, s.store, s.store.order(), &step.numbers->scalars);
    s.trace("local update", step.step);
    ++s.since_reset;
  }
  step.updated = s.all_updated = s.update.record();
  std::fill(s.updated.begin(), s.updated.end(), s.all_updated);
  ++s.current().local_steps;
  s.in_step = false;
}

bool LocalEngine::vote_to_end() {
  Impl& s = *impl_;
  check(s.open && !s.in_step, "the end of a round is voted on after a step");
  if (s.current().local_steps >= s.options.rule.steps) return true;
  if (!s.options.rule.vote) return false;
  const auto lag = static_cast<std::size_t>(s.options.vote_lag);
  if (s.taken <= lag) return true;
  const Impl::Step& voted = s.steps[(s.taken - lag) % s.steps.size()];
  voted.voted.wait();
  return voted.numbers->vote != 0;
}

Event LocalEngine::finish() {
  Impl& s = *impl_;
  check(s.open && !s.in_step, "a round was finished inside a step");
  Impl::Slot& slot = s.current();
  slot.round.step = s.current_step().step;
  s.compute.host([&slot] { slot.numbers->own_weight = slot.round.header->weight; });
  const Event counted = s.compute.record();
  const auto in = slot.header.launch(s.comm, counted, slot.round.step);
  slot.round.header_in = in.header;
  slot.round.loss_in = in.loss;
  s.update.wait(counted);
  s.update.host([&slot] { slot.ready_ns = now_ns(); });
  s.mark(slot.round.step);
  s.exchange.enqueue(slot.round, *slot.numbers, s.updated);
  if (s.options.rule.local_state == LocalState::reset) {
    for (int i = 0; i < s.store.slots(); ++i) fill_zero(s.update, s.store.slot(i));
    s.since_reset = 0;
  }
  s.trace("exchange", slot.round.step);
  s.update.host([&slot] { slot.done_ns = now_ns(); });
  slot.round.updated = s.all_updated = s.update.record();
  s.open = false;
  return slot.round.updated;
}

RoundResult LocalEngine::result(std::int64_t step) {
  Impl& s = *impl_;
  for (const Impl::Slot& slot : s.slots) {
    if (slot.round.step != step) continue;
    slot.round.updated.wait();
    s.exchange_ns = slot.done_ns - slot.ready_ns;
    RoundResult result = result_of(slot.round, slot.header.entries());
    result.bytes =
        s.exchange.payload() + slot.votes * static_cast<std::int64_t>(sizeof(StepNumbers::vote));
    return result;
  }
  check(false, fmt::format("the result of step {} is not kept", step));
  return {};
}

Event LocalEngine::ready(ParamId p) const {
  const auto bucket = impl_->exchange.plan().bucket_of[static_cast<std::size_t>(p)];
  return impl_->updated[static_cast<std::size_t>(bucket)];
}

Event LocalEngine::quiesced() const { return impl_->all_updated; }
std::int64_t LocalEngine::exchange_ns() const { return impl_->exchange_ns; }
std::span<const Engine::Extra> LocalEngine::extras() { return impl_->extras; }

/// The votes that are not obeyed yet, oldest first, then the voter's own state.
std::string LocalEngine::save_votes() const {
  const Impl& s = *impl_;
  check(!s.open, "votes are saved between rounds");
  const auto lag = std::min(static_cast<std::size_t>(s.options.vote_lag), s.taken);
  std::string votes;
  for (std::size_t step = s.taken - lag + 1; step <= s.taken; ++step) {
    const Impl::Step& voted = s.steps[step % s.steps.size()];
    voted.voted.wait();
    votes += voted.numbers->vote != 0 ? '1' : '0';
  }
  return votes + " " + s.voter.save();
}

void LocalEngine::load_votes(const std::string& state) {
  Impl& s = *impl_;
  check(s.taken == 0, "votes are loaded before the first round");
  const std::size_t votes = state.find(' ');
  check(votes <= s.steps.size(), "saved votes belong to this lag");
  for (std::size_t i = 0; i < votes; ++i)
    s.steps[++s.taken % s.steps.size()].numbers->vote = state[i] == '1' ? 1 : 0;
  s.voter.load(state.substr(votes + 1));
}

void LocalEngine::show() {
  Impl& s = *impl_;
  if (!s.options.rule.elastic || std::exchange(s.shown, true)) return;
  s.exchange.begin();
  s.exchange.swap();
}

void LocalEngine::hide() {
  Impl& s = *impl_;
  if (std::exchange(s.shown, false)) s.exchange.swap();
}

std::int64_t LocalEngine::inline_wait_ns() const {
  return &impl_->update == &impl_->compute ? impl_->exchange.wait_ns() : 0;
}

std::size_t LocalEngine::bytes() const {
  const Impl& s = *impl_;
  return kKept * s.slots.front().header.bytes() + s.pinned.size() + s.exchange.bytes() +
         (s.accumulator ? s.accumulator->bytes() : 0);
}

}  // namespace sidestep
