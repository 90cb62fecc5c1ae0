#include "comm/round_engine.h"

#include <fmt/format.h>

#include <bit>
#include <cstddef>
#include <exception>
#include <new>

#include "comm/bucket_updater.h"
#include "comm/reducer.h"
#include "core/base/error.h"

namespace sidestep {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Offsets of a round's numbers in its piece of pinned memory, each on a cache line of its own.
struct RoundLayout {
  std::size_t header = 0;
  std::size_t loss = aligned(sizeof(RoundHeader));
  std::size_t scalars = loss + aligned(sizeof(double));
  std::size_t squares = scalars + aligned(sizeof(UpdateScalars));
  std::size_t bytes;
  explicit RoundLayout(std::size_t buckets) : bytes(squares + aligned(buckets * sizeof(double))) {}
};

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
        layout(plan.buckets.size()),
        numbers(Device{}, kKept * layout.bytes, Buffer::Kind::pinned),
        reducer(plan, o.overlap == Overlap::off,
                [this](int bucket, const Event& ready) { launch(bucket, ready); }),
        updater(param_store, the_optimizer, plan, update_stream, o.clip_norm, o.tracer),
        reduced(plan.buckets.size()),
        updated(plan.buckets.size()) {
    for (std::size_t i = 0; i < kKept; ++i) {
      std::byte* const data = numbers.data() + i * layout.bytes;
      rounds[i].header = new (data + layout.header) RoundHeader{};
      rounds[i].loss = new (data + layout.loss) double{0};
      rounds[i].scalars = new (data + layout.scalars) UpdateScalars{};
      rounds[i].squares = new (data + layout.squares) double[plan.buckets.size()]{};
    }
    for (std::size_t b = 0; b < plan.buckets.size(); ++b)
      span_names.push_back(fmt::format("all-reduce bucket {}", b));
  }

  Round& current() { return rounds[started % kKept]; }

  View view_of(std::size_t offset, std::int64_t numel, DType dtype) const {
    return numbers.view((started % kKept) * layout.bytes + offset, Shape{numel}, dtype);
  }
  View header_view() const { return view_of(layout.header, kHeaderFields, DType::i64); }
  View loss_view() const { return view_of(layout.loss, 1, DType::f64); }

  void launch(int bucket, const Event& ready) {
    const auto b = static_cast<std::size_t>(bucket);
    const Bucket& slice = plan.buckets[b];
    View grads = store.grads();
    grads.data += static_cast<std::size_t>(slice.begin) * size_of(grads.dtype);
    grads.shape = Shape{slice.end - slice.begin};
    reduced[b] = comm.all_reduce(grads, Reduce::sum, ready, span_names[b].c_str(), current().step);
  }

  ParamStore& store;
  const Optimizer& optimizer;
  CommThread& comm;
  Stream& compute;
  Stream& update;
  const Options options;
  const BucketPlan plan;
  const RoundLayout layout;
  Buffer numbers;  ///< kKept rounds
  std::array<Round, kKept> rounds;
  Reducer reducer;
  BucketUpdater updater;
  std::vector<std::string> span_names;  ///< by bucket
  std::vector<Event> reduced;           ///< by bucket, of the current round
  std::vector<Event> updated;           ///< by bucket, of the last finished round
  Event all_updated;                    ///< of the last finished round
  std::size_t started = 0;              ///< rounds; the current one's number
  bool open = false;
  bool contributed = false;
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

void RoundEngine::begin(std::int64_t step, std::int64_t update_number, double lr) {
  Impl& s = *impl_;
  check(!s.open, "a round began before the last one was finished");
  ++s.started;
  Round& round = s.current();
  round.updated.wait();  // the round that had this memory
  round.step = step;
  round.grad_norm.reset();
  *round.header = RoundHeader{};
  *round.loss = 0;
  *round.scalars = s.optimizer.scalars(lr, update_number);
  s.reducer.begin();
  s.open = true;
  s.contributed = false;
}

void RoundEngine::contribute(const View* loss, const View* weight, const View* correct,
                             std::int64_t samples, std::uint64_t index_digest, bool stop) {
  Impl& s = *impl_;
  check(s.open && !s.contributed, "one contribution per round");
  s.contributed = true;
  Round& round = s.current();
  round.header->samples = samples;
  round.header->participants = samples > 0 ? 1 : 0;
  round.header->stop_requests = stop ? 1 : 0;
  round.header->index_digest = std::bit_cast<std::int64_t>(index_digest);
  if (loss != nullptr) {
    check(weight != nullptr && correct != nullptr, "a loss comes with its weight and correct");
    const auto field = [&](std::size_t offset) {
      return s.view_of(s.layout.header + offset, 1, DType::i64);
    };
    copy(s.compute, field(offsetof(RoundHeader, weight)), *weight);
    copy(s.compute, field(offsetof(RoundHeader, correct)), *correct);
    copy(s.compute, s.loss_view(), *loss);
  } else {
    // Without a forward nothing keeps this rank from zeroing gradients that are still in use.
    s.compute.wait(s.all_updated);
  }
  const Event ready = s.compute.record();
  round.header_in =
      s.comm.all_reduce(s.header_view(), Reduce::sum, ready, "all-reduce header", round.step);
  round.loss_in =
      s.comm.all_reduce(s.loss_view(), Reduce::sum, ready, "all-reduce loss", round.step);
}

GradSink& RoundEngine::sink() { return impl_->reducer; }

Event RoundEngine::finish() {
  Impl& s = *impl_;
  check(s.open && s.contributed, "a round was finished without a contribution");
  Round& round = s.current();
  s.reducer.flush(s.compute.record());
  s.updater.enqueue(round, s.reduced, s.reducer.last_reads(), s.updated);
  round.updated = s.all_updated = s.update.record();
  s.open = false;
  return round.updated;
}

RoundResult RoundEngine::result(std::int64_t step) {
  const Impl& s = *impl_;
  for (const Round& round : s.rounds) {
    if (round.step != step) continue;
    check(!s.open || &round != &impl_->current(), "the round is not finished");
    round.updated.wait();
    const RoundHeader& h = *round.header;
    return {.step = step,
            .weight = h.weight,
            .samples = h.samples,
            .correct = h.correct,
            .participants = h.participants,
            .stop_requests = h.stop_requests,
            .index_digest = std::bit_cast<std::uint64_t>(h.index_digest),
            .loss_sum = *round.loss,
            .grad_norm = round.grad_norm};
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
const BucketPlan& RoundEngine::plan() const { return impl_->plan; }
std::size_t RoundEngine::bytes() const { return impl_->numbers.size(); }

std::int64_t RoundEngine::inline_wait_ns() const {
  return &impl_->update == &impl_->compute ? impl_->updater.wait_ns() : 0;
}

}  // namespace sidestep
