#include "comm/quorum_engine.h"

#include <fmt/format.h>

#include <exception>
#include <optional>
#include <utility>

#include "comm/accumulator.h"
#include "comm/quorum_agent.h"
#include "comm/quorum_lane.h"
#include "comm/reducer.h"
#include "core/base/error.h"

namespace sidestep {

struct QuorumEngine::Impl {
  Impl(ParamStore& param_store, const Optimizer& optimizer, CommThread& comm_thread,
       Stream& compute_stream, Stream& update_stream, const Options& o)
      : store(param_store),
        comm(comm_thread),
        compute(compute_stream),
        lane(param_store, optimizer, comm_thread, update_stream,
             {.buckets = o.buckets,
              .clip_norm = o.clip_norm,
              .tracer = o.tracer,
              .applied = o.applied}),
        agent(comm_thread, lane, optimizer, o),
        reducer(lane.plan(), /*hold=*/false, [this](int bucket, const Event& ready) {
          agent.work().grads[static_cast<std::size_t>(bucket)] = ready;
        }) {
    if (o.micro_batches) accumulator.emplace(param_store, compute_stream);
  }

  /// A pass reads exactly the version before its round.
  void expect_version(std::int64_t version) {
    compute.host([this, version] {
      check(lane.version() == version, "a pass would read a version that is not the one before it");
    });
  }

  ParamStore& store;
  CommThread& comm;
  Stream& compute;
  QuorumLane lane;
  QuorumAgent agent;
  Reducer reducer;
  std::optional<GradAccumulator> accumulator;
  NoSink no_sink;
  Buffer start_token{Device{}, sizeof(std::int64_t), Buffer::Kind::pinned};
  Event refreshed;
  bool started = false;
  const int exceptions_at_start = std::uncaught_exceptions();
};

QuorumEngine::QuorumEngine(ParamStore& store, const Optimizer& optimizer, CommThread& comm,
                           Stream& compute, Stream& update, const Options& options)
    : impl_(std::make_unique<Impl>(store, optimizer, comm, compute, update, options)) {
  check(static_cast<bool>(options.plan), "the quorum engine needs a plan of its rounds");
}

QuorumEngine::~QuorumEngine() {
  // The comm thread and tasks of both streams work on the engine's memory. When an error cuts a
  // round short, peers may never answer.
  Impl& s = *impl_;
  if (s.started) s.comm.remove_agent(s.agent);
  if (!s.agent.idle() || std::uncaught_exceptions() > s.exceptions_at_start) s.comm.give_up();
  try {
    s.compute.synchronize();
  } catch (...) {  // whoever needs the result learns it from its own event
  }
  s.lane.settle();
}

void QuorumEngine::start(std::int64_t first) {
  Impl& s = *impl_;
  check(!s.started, "rounds start once");
  copy(s.compute, s.lane.master(), s.store.values());
  s.agent.open_first(first, s.compute.record());
  s.comm.add_agent(s.agent);
  s.started = true;
  // Nobody sends before everybody listens.
  const View token = s.start_token.view(0, Shape{1}, DType::i64);
  s.comm.all_reduce(token, Reduce::sum, Event(), "all-reduce start", first - 1).wait();
}

std::int64_t QuorumEngine::claim() {
  Impl& s = *impl_;
  const std::int64_t round = s.agent.take_round(s.compute);
  if (round == 0) return 0;
  s.compute.wait(s.agent.consumed());
  s.compute.wait(s.agent.readable());
  s.expect_version(round - 1);
  copy(s.compute, s.store.values(), s.lane.master());
  s.expect_version(round - 1);
  s.agent.taken(s.compute.record());
  return round;
}

const RoundInfo& QuorumEngine::info() const { return impl_->agent.work().info; }
bool QuorumEngine::missed() const { return impl_->agent.missed(); }
std::int64_t QuorumEngine::newest_closed() const { return impl_->agent.newest_closed(); }
std::unique_lock<std::mutex> QuorumEngine::lock() const { return impl_->agent.lock(); }

void QuorumEngine::begin(const RoundStart& start) {
  Impl& s = *impl_;
  QuorumWork& work = s.agent.work();
  check(start.step == work.round, "a round that was not claimed begins");
  work.counted.clear();
  work.samples = work.units = 0;
  work.index_digest = 0;
  work.flushed = false;
  work.stop = start.stop;
  s.agent.begin(start.own);
  s.reducer.begin();
  if (s.accumulator) s.accumulator->begin();
}

void QuorumEngine::add(const View& loss, const View& weight, const View& correct,
                       std::int64_t samples, std::uint64_t index_digest) {
  Impl& s = *impl_;
  QuorumWork& work = s.agent.work();
  work.counted.add(s.compute, loss, weight, correct);
  work.samples += samples;
  ++work.units;
  work.index_digest += index_digest;
}

GradSink& QuorumEngine::sink(bool last) {
  Impl& s = *impl_;
  if (!last) return s.no_sink;
  s.agent.work().committed = s.compute.record();
  return s.accumulator ? s.accumulator->last_sink(s.reducer) : s.reducer;
}

void QuorumEngine::accumulate() {
  check(impl_->accumulator.has_value(),
        "micro-batches are added up only where they were announced");
  impl_->accumulator->add(impl_->compute);
}

void QuorumEngine::cut_short(bool executed) {
  Impl& s = *impl_;
  if (executed) {
    s.agent.work().flushed = true;
    s.accumulator->flush(s.compute);
  } else {
    fill_zero(s.compute, s.store.grads());
  }
  s.agent.work().committed = s.compute.record();
}

void QuorumEngine::begin_local_step(std::int64_t, std::int64_t, double) {
  check(false, "a round of the quorum family is one step");
}

Event QuorumEngine::finish() {
  Impl& s = *impl_;
  QuorumWork& work = s.agent.work();
  const Event complete = s.compute.record();
  work.complete = complete;
  s.reducer.flush(complete);
  s.agent.hand_over();
  return complete;
}

RoundResult QuorumEngine::result(std::int64_t step) {
  Impl& s = *impl_;
  bool flushed = false;
  const RoundResult result = s.agent.result(step, flushed);
  if (flushed) {
    copy(s.compute, s.store.values(), s.lane.master());
    s.refreshed = s.compute.record();
  }
  return result;
}

Event QuorumEngine::quiesced() const { return impl_->refreshed; }
std::int64_t QuorumEngine::exchange_ns() const { return impl_->agent.exchange_ns(); }
const BucketPlan& QuorumEngine::buckets() const { return impl_->lane.plan(); }
QuorumEngine::Counts QuorumEngine::counts() const { return impl_->agent.counts(); }

std::size_t QuorumEngine::bytes() const {
  const Impl& s = *impl_;
  return s.lane.bytes() + (s.accumulator ? s.accumulator->bytes() : 0);
}

}  // namespace sidestep
