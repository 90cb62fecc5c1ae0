#include "app/rig.h"

#include <algorithm>
#include <cmath>

#include "app/banner.h"
#include "app/host_view.h"
#include "core/base/error.h"
#include "core/ops/threads.h"

namespace sidestep {
namespace {

Overlap overlap_from(const std::string& name) {
  if (name == "off") return Overlap::off;
  return name == "backward" ? Overlap::backward : Overlap::full;
}

std::int64_t samples_after(const Sampler& sampler, std::int64_t dataset_size, std::int64_t steps) {
  const std::int64_t epochs = steps / sampler.steps_per_epoch();
  const std::int64_t rest = steps % sampler.steps_per_epoch();
  return epochs * dataset_size + std::min(rest * sampler.batch_sizes().front(), dataset_size);
}

}  // namespace

ScheduleConfig schedule_from(const Settings& s, std::int64_t dataset_size,
                             std::int64_t total_samples) {
  const auto samples = [&](double epochs) {
    return static_cast<std::int64_t>(std::llround(epochs * static_cast<double>(dataset_size)));
  };
  return {.name = s.schedule,
          .lr = scaled_lr(s),
          .warmup_samples = samples(s.warmup_epochs),
          .total_samples = total_samples,
          .min_lr = s.min_lr,
          .step_samples = samples(s.step_epochs),
          .gamma = s.gamma};
}

ModelConfig model_from(const Settings& s, const Dataset& data) {
  const Shape sample = data.sample_shape();
  return {.name = s.model,
          .height = sample[0],
          .width = sample[1],
          .channels = sample[2],
          .classes = data.classes(),
          .hidden = s.hidden};
}

OptimizerConfig optimizer_from(const Settings& s) {
  return {.name = s.optimizer,
          .momentum = s.momentum,
          .nesterov = s.nesterov,
          .beta1 = s.beta1,
          .beta2 = s.beta2,
          .epsilon = s.epsilon,
          .weight_decay = s.weight_decay};
}

Rig::Rig(const Config& config, std::unique_ptr<Communicator> comm)
    : settings_(config.settings),
      rank_(comm->rank()),
      ranks_(comm->size()),
      last_step_(config.last_step),
      data_(config.data),
      sampler_(config.data.size(), config.settings.batch,
               static_cast<std::uint64_t>(config.settings.seed), config.settings.shuffle),
      policy_(make_policy(config.settings.policy)),
      builder_(make_model(config.model)),
      schedule_(schedule_from(config.settings, config.data.size(),
                              samples_after(sampler_, config.data.size(), config.last_step))),
      tracer_(config.tracer),
      comm_(std::make_unique<CommThread>(std::move(comm),
                                         CommThread::Options{.tracer = config.tracer})),
      compute_(Stream::create(config.device, "compute")),
      update_(Stream::create(config.device, "update",
                             config.shared_update ? StreamMode::direct : StreamMode::threaded)),
      shared_update_(config.shared_update) {
  set_compute_threads(config.threads);  // of this thread: oneDNN primitives keep what holds now
  compute_.host([threads = config.threads] { set_compute_threads(threads); });
  compute_.synchronize();
  executor_ = std::make_unique<Executor>(
      builder_, Executor::Options{
                    .device = config.device, .batches = own_batches(), .tracer = config.tracer});
  executor_->params().initialize(static_cast<std::uint64_t>(settings_.seed));
  optimizer_ = make_optimizer(optimizer_from(settings_), executor_->params());
  const auto bucket_bytes = static_cast<std::int64_t>(settings_.bucket_mb * 1048576);
  engine_ = std::make_unique<RoundEngine>(
      executor_->params(), *optimizer_, *comm_, compute_, shared_update_ ? compute_ : update_,
      RoundEngine::Options{.buckets = {.bytes = bucket_bytes, .first_bytes = bucket_bytes / 4},
                           .overlap = overlap_from(settings_.overlap),
                           .clip_norm = settings_.clip_norm,
                           .tracer = config.tracer});
}

Rig::~Rig() = default;

std::vector<std::int64_t> Rig::shares(std::int64_t global_batch) const {
  WorkPlan plan;
  policy_->plan({.step = 1, .global_batch = global_batch, .rank = rank_, .ranks = ranks_}, plan);
  return plan.shares;
}

std::vector<std::int64_t> Rig::own_batches() const {
  std::vector<std::int64_t> sizes;
  for (const std::int64_t batch : sampler_.batch_sizes()) {
    const std::int64_t own = shares(batch)[static_cast<std::size_t>(rank_)];
    if (own > 0 && std::ranges::find(sizes, own) == sizes.end()) sizes.push_back(own);
  }
  // A rank that never has samples still holds the parameters and joins every exchange.
  if (sizes.empty()) sizes.push_back(1);
  return sizes;
}

std::size_t Rig::planned_bytes() const {
  const std::size_t batch_bytes =
      static_cast<std::size_t>(std::ranges::max(own_batches()) * data_.sample_shape().numel()) *
      sizeof(float);
  return executor_->params().bytes() + executor_->slab_bytes() + executor_->input_bytes() +
         engine_->bytes() + batch_bytes * static_cast<std::size_t>(settings_.prefetch);
}

void Rig::start(const Position& position) {
  check(!prefetch_, "a rig is started once");
  loading_ = enqueued_ = position;
  completed_ = position.step;
  last_completed_ns_ = now_ns();
  prefetch_ = std::make_unique<Prefetcher>(
      data_, std::ranges::max(own_batches()), static_cast<int>(settings_.prefetch),
      [this](LoadRequest& request) { return next_request(request); }, tracer_);
}

bool Rig::next_request(LoadRequest& request) {
  if (loading_.step >= last_step_) return false;
  const std::int64_t batch = sampler_.batch_at(loading_.cursor);
  policy_->plan({.step = loading_.step + 1, .global_batch = batch, .rank = rank_, .ranks = ranks_},
                plan_);
  std::int64_t begin = 0;
  for (int r = 0; r < rank_; ++r) begin += plan_.shares[static_cast<std::size_t>(r)];
  sampler_.ids(loading_.cursor, begin, begin + plan_.shares[static_cast<std::size_t>(rank_)],
               request.ids);
  request.epoch = loading_.cursor.epoch;
  request.step = ++loading_.step;
  loading_.cursor = sampler_.next(loading_.cursor);
  return true;
}

void Rig::run_samples(const LoadedBatch& batch, Pending& pending, bool stop) {
  const std::int64_t step = batch.step;
  const std::int64_t n = batch.count;
  copy(compute_, executor_->input(n, "x"), batch.x);
  copy(compute_, executor_->input(n, "y"), batch.y);
  prefetch_->release(batch.slot, compute_.record());
  compute_.host([this, &pending] { pending.compute_ns = executor_->gate_wait_ns() - now_ns(); });
  executor_->forward(compute_, n, engine_.get(), step);
  const View loss = executor_->loss(n), weight = executor_->weight(n),
             correct = executor_->correct(n);
  engine_->contribute(&loss, &weight, &correct, n, batch.digest, stop);
  copy(compute_, host_view(&pending.loss), loss);
  executor_->backward(compute_, n, engine_->sink(), step);
  compute_.host([this, &pending] { pending.compute_ns += now_ns() - executor_->gate_wait_ns(); });
  pending.computed = compute_.record();
}

void Rig::enqueue(bool stop) {
  check(outstanding() < 2, "complete() a step before enqueueing a third");
  const std::int64_t batch_size = sampler_.batch_at(enqueued_.cursor);
  Pending& pending = pending_[static_cast<std::size_t>(enqueued_.step + 1) % pending_.size()];
  pending = {};
  pending.cursor = enqueued_.cursor;
  pending.batch = batch_size;
  pending.lr = learning_rate(schedule_, enqueued_.samples_seen, batch_size);
  const LoadedBatch batch = prefetch_->take(pending.input_wait_ns);
  check(batch.step == enqueued_.step + 1, "the loader is at another step");
  enqueued_ = {batch.step, enqueued_.samples_seen + batch_size, sampler_.next(enqueued_.cursor)};
  pending.after = enqueued_;
  pending.own_samples = batch.count;
  engine_->begin(batch.step, batch.step, pending.lr);
  if (batch.count > 0) {
    run_samples(batch, pending, stop);
  } else {
    prefetch_->release(batch.slot, Event());
    engine_->contribute(nullptr, nullptr, nullptr, 0, 0, stop);
    executor_->idle_backward(compute_, engine_->sink());
  }
  engine_->finish();
}

StepReport Rig::complete() {
  check(outstanding() > 0, "complete() without an outstanding step");
  const Pending& pending = pending_[static_cast<std::size_t>(completed_ + 1) % pending_.size()];
  const RoundResult round = engine_->result(pending.after.step);
  pending.computed.wait();
  StepReport report{.round = round,
                    .after = pending.after,
                    .lr = pending.lr,
                    .input_wait_ns = pending.input_wait_ns,
                    .compute_ns = pending.compute_ns,
                    .own_samples = pending.own_samples};
  ++completed_;
  const std::int64_t now = now_ns();
  report.step_ns = now - last_completed_ns_;
  last_completed_ns_ = now;
  // Waits of a step that is still running are counted with the next report; the sums agree.
  const std::int64_t gate_wait = executor_->gate_wait_ns() + engine_->inline_wait_ns();
  report.exposed_ns = gate_wait - gate_wait_before_;
  gate_wait_before_ = gate_wait;
  return report;
}

std::string Rig::inspect_numbers() {
  const Pending& pending = pending_[static_cast<std::size_t>(completed_ + 1) % pending_.size()];
  if (std::isfinite(pending.loss)) return "";
  std::int64_t begin = 0;
  const auto by_rank = shares(pending.batch);
  for (int r = 0; r < rank_; ++r) begin += by_rank[static_cast<std::size_t>(r)];
  std::vector<std::int64_t> ids;
  Sampler(data_.size(), settings_.batch, static_cast<std::uint64_t>(settings_.seed),
          settings_.shuffle)
      .ids(pending.cursor, begin, begin + pending.own_samples, ids);
  std::vector<float> x(static_cast<std::size_t>(data_.sample_shape().numel()));
  std::int32_t y = 0;
  std::string bad;
  for (const std::int64_t id : ids) {
    data_.read(std::span(&id, 1), {.x = x.data(), .y = &y});
    if (std::ranges::all_of(x, [](float v) { return std::isfinite(v); })) continue;
    bad += (bad.empty() ? " " : ", ") + std::to_string(id);
  }
  return "loss " + std::to_string(pending.loss) +
         (bad.empty() ? ", all inputs finite" : ", input not finite in samples" + bad);
}

}  // namespace sidestep
