#include "comm/bucket_updater.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/base/error.h"
#include "core/optim/norm.h"

namespace sidestep {
namespace {

constexpr const char* kRemedy = "lower --lr or set --clip-norm, and look at the data of this step";

void check_finite_loss(const Round& round) {
  if (std::isfinite(*round.loss)) return;
  fail(Exit::numbers,
       fmt::format("step {}: the loss summed over all ranks is not finite: expected a number, "
                   "found {}; {}",
                   round.step, *round.loss, kRemedy));
}

/// What divides the summed gradient; 0 if nothing took part.
double divisor_of(const Round& round) {
  const std::int64_t weight = round.header->weight;
  if (weight <= 0 || round.batch <= 0)
    return static_cast<double>(std::max<std::int64_t>(weight, 0));
  return static_cast<double>(std::min(round.batch, std::max(round.nominal, weight)));
}

/// With no weight at all the weights stay as they are.
void set_scale(const Round& round) {
  const double divisor = divisor_of(round);
  round.scalars->grad_scale = divisor > 0 ? static_cast<float>(1.0 / divisor) : 0;
  if (divisor <= 0) round.scalars->lr = 0;
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
          .grad_norm = round.grad_norm,
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
    check_finite_loss(*r);
    set_scale(*r);
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
  update_.host([this, r = &round, bucket] { check_finite(*r, bucket); });
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
  const double divisor = divisor_of(round);
  const double norm = divisor > 0 ? std::sqrt(sum) / divisor : 0;
  constexpr double kEpsilon = 1e-6;  // as in PyTorch's clip_grad_norm_
  const double coefficient = std::min(1.0, clip_norm_ / (norm + kEpsilon));
  round.grad_norm = norm;
  round.scalars->grad_scale *= static_cast<float>(coefficient);
}

void BucketUpdater::check_finite(const Round& round, std::size_t bucket) const {
  if (std::isfinite(round.squares[bucket])) return;
  fail(Exit::numbers,
       fmt::format("step {}: the reduced gradient of {} is not finite: expected numbers, found inf "
                   "or nan; {}",
                   round.step, not_finite_params(plan_.buckets[bucket]), kRemedy));
}

/// Their names, as far as host memory can be looked at; else all of the bucket's.
std::string BucketUpdater::not_finite_params(const Bucket& bucket) const {
  std::string names;
  for (const ParamId p : bucket.params) {
    const View grad = store_.grad(p);
    if (grad.device.kind == DeviceKind::cpu) {
      const std::span<const float> values(grad.as<float>(), static_cast<std::size_t>(grad.numel()));
      if (std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); }))
        continue;
    }
    names += (names.empty() ? "" : ", ") + store_.spec(p).name;
  }
  return names;
}

}  // namespace sidestep
