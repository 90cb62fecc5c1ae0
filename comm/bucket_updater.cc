#include "comm/bucket_updater.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "comm/update_numbers.h"
#include "core/optim/norm.h"

namespace sidestep {
namespace {

/// What divides the summed gradient; 0 if nothing took part.
double divisor_of(const Round& round) {
  const std::int64_t weight = round.header->weight;
  if (weight <= 0 || round.batch <= 0)
    return static_cast<double>(std::max<std::int64_t>(weight, 0));
  return static_cast<double>(std::min(round.batch, std::max(round.nominal, weight)));
}

}  // namespace

RoundResult result_of(const Round& round, std::span<const RankEntry> entries) {
  const RoundHeader& h = *round.header;
  return {.step = round.step,
          .weight = h.weight,
          .samples = h.samples,
          .correct = h.correct,
          .participants = h.participants,
          .stop_requests = h.stop_requests,
          .index_digest = std::bit_cast<std::uint64_t>(h.index_digest),
          .loss_sum = *round.loss,
          .flushed = h.flushed,
          .grad_norm = {},
          .entries = entries};
}

BucketUpdater::BucketUpdater(ParamStore& store, const Optimizer& optimizer, const BucketPlan& plan,
                             Stream& update, double clip_norm, Tracer* tracer)
    : store_(store),
      optimizer_(optimizer),
      plan_(plan),
      update_(update),
      clip_norm_(clip_norm),
      tracer_(tracer) {
  for (std::size_t b = 0; b < plan.buckets.size(); ++b)
    span_names_.push_back(fmt::format("update bucket {}", b));
}

void BucketUpdater::enqueue(Round& round, std::span<const Event> reduced,
                            std::span<const Event> last_reads, std::span<Event> updated) {
  wait_for(round.header_in);
  wait_for(round.loss_in);
  update_.host([r = &round] {
    check_finite_loss(*r->loss, r->step);
    set_divisor(*r->scalars, divisor_of(*r));
  });
  const bool clips = clip_norm_ > 0;
  if (clips) {  // the norm needs every bucket
    for (std::size_t b = 0; b < reduced.size(); ++b) enqueue_test(round, b, reduced[b]);
    update_.host([this, r = &round] { clip(*r); });
  }
  for (std::size_t b = 0; b < reduced.size(); ++b) {
    if (!clips) enqueue_test(round, b, reduced[b]);
    enqueue_update(round, b, last_reads[b]);
    updated[b] = update_.record();
  }
}

void BucketUpdater::wait_for(const Event& exchanged) {
  update_.host([this] { wait_begin_ns_ = now_ns(); });
  update_.wait(exchanged);
  update_.host([this] { wait_ns_.fetch_add(now_ns() - wait_begin_ns_); });
}

void BucketUpdater::enqueue_test(Round& round, std::size_t bucket, const Event& reduced) {
  const Bucket& b = plan_.buckets[bucket];
  View grads = store_.grads();
  grads.data += static_cast<std::size_t>(b.begin) * size_of(grads.dtype);
  grads.shape = Shape{b.end - b.begin};
  wait_for(reduced);
  sum_of_squares(update_, grads, &round.squares[bucket]);
  update_.host([this, r = &round, bucket] {
    check_finite(r->squares[bucket], store_, store_.grads(), plan_.buckets[bucket].params,
                 "the reduced gradient", r->step);
  });
}

void BucketUpdater::enqueue_update(Round& round, std::size_t bucket, const Event& last_read) {
  update_.wait(last_read);
  const bool traced = tracer_ != nullptr && tracer_->wants(round.step);
  if (traced) update_.host([this] { span_begin_ns_ = now_ns(); });
  optimizer_.update(update_, store_, plan_.buckets[bucket].params, round.scalars);
  if (traced) {
    update_.host([this, bucket, step = round.step] {
      tracer_->add({span_names_[bucket].c_str(), span_begin_ns_, now_ns(), step, TraceRow::update});
    });
  }
}

void BucketUpdater::clip(Round& round) const {
  double sum = 0;
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) sum += round.squares[b];
  round.grad_norm = sidestep::clip(*round.scalars, sum, divisor_of(round), clip_norm_);
}

}  // namespace sidestep
