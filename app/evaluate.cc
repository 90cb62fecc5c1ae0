#include "app/evaluate.h"

#include <algorithm>
#include <numeric>

#include "app/host_view.h"
#include "comm/sync_policy.h"

namespace sidestep {
namespace {

/// First sample of this rank's contiguous share.
std::int64_t first_of(std::int64_t samples, int rank, int ranks) {
  std::vector<std::int64_t> shares;
  even_shares(samples, ranks, shares);
  return std::accumulate(shares.begin(), shares.begin() + rank, std::int64_t{0});
}

}  // namespace

Evaluator::Evaluator(const ModelBuilder& build, std::shared_ptr<ParamStore> params, Dataset& data,
                     std::int64_t batch, int rank, int ranks)
    : data_(data),
      begin_(first_of(data.size(), rank, ranks)),
      end_(first_of(data.size(), rank + 1, ranks)),
      batch_(std::max<std::int64_t>(batch, 1)),
      executor_(build, {.device = params->device(), .training = false, .batches = batches()},
                params) {
  const auto rows =
      static_cast<std::size_t>(std::min(batch_, std::max<std::int64_t>(end_ - begin_, 1)));
  host_x_ = Buffer({}, rows * static_cast<std::size_t>(data.sample_shape().numel()) * sizeof(float),
                   Buffer::Kind::pinned);
  host_y_ = Buffer({}, rows * sizeof(std::int32_t), Buffer::Kind::pinned);
}

std::vector<std::int64_t> Evaluator::batches() const {
  const std::int64_t own = end_ - begin_;
  std::vector<std::int64_t> sizes;
  if (own >= batch_) sizes.push_back(batch_);
  if (own % batch_ != 0) sizes.push_back(own % batch_);
  if (sizes.empty()) sizes.push_back(1);
  return sizes;
}

std::size_t Evaluator::bytes() const {
  return executor_.slab_bytes() + executor_.input_bytes() + host_x_.size() + host_y_.size();
}

void Evaluator::run_batch(Stream& compute, std::int64_t first, std::int64_t count,
                          std::int64_t step) {
  ids_.resize(static_cast<std::size_t>(count));
  std::iota(ids_.begin(), ids_.end(), first);
  const View x = executor_.input(count, "x"), y = executor_.input(count, "y");
  const View host_x = host_x_.view(0, x.shape, x.dtype), host_y = host_y_.view(0, y.shape, y.dtype);
  data_.read(ids_, {.x = host_x.as<float>(), .y = host_y.as<std::int32_t>()});
  copy(compute, x, host_x);
  copy(compute, y, host_y);
  executor_.forward(compute, count, nullptr, step);
  double loss = 0;
  std::int64_t correct = 0;
  copy(compute, host_view(&loss), executor_.loss(count));
  copy(compute, host_view(&correct), executor_.correct(count));
  compute.synchronize();
  loss_ += loss;
  counts_[0] += correct;
  counts_[1] += count;
}

EvalResult Evaluator::run(Stream& compute, CommThread& comm, std::int64_t step) {
  loss_ = 0;
  counts_ = {};
  for (std::int64_t first = begin_; first < end_; first += batch_)
    run_batch(compute, first, std::min(batch_, end_ - first), step);
  comm.all_reduce(host_view(counts_.data(), 2), Reduce::sum, {}, "all-reduce evaluation", step);
  comm.all_reduce(host_view(&loss_), Reduce::sum, {}, "all-reduce evaluation", step).wait();
  const double mean = counts_[1] > 0 ? loss_ / static_cast<double>(counts_[1]) : 0;
  return {.loss = mean, .correct = counts_[0], .samples = counts_[1]};
}

}  // namespace sidestep
