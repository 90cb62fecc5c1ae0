#include "app/rig.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "app/banner.h"
#include "app/host_view.h"
#include "comm/round_engine.h"
#include "core/base/error.h"
#include "core/ops/threads.h"

namespace sidestep {
namespace {

Overlap overlap_from(const std::string& name) {
  if (name == "off") return Overlap::off;
  return name == "backward" ? Overlap::backward : Overlap::full;
}

std::int64_t samples_until(const Goal& goal, std::int64_t dataset_size, std::int64_t batch) {
  if (goal.steps == 0) return goal.epochs * dataset_size;
  const std::int64_t per_epoch = (dataset_size + batch - 1) / batch;
  return goal.steps / per_epoch * dataset_size +
         std::min(goal.steps % per_epoch * std::min(batch, dataset_size), dataset_size);
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

PolicyConfig policy_from(const Settings& s, int ranks) {
  const std::int64_t share = std::max<std::int64_t>(s.batch / ranks, 1);
  const bool in_parts = s.policy == "balance" || s.policy == "drop";
  const std::int64_t usual = in_parts ? std::max<std::int64_t>(share / 8, 1) : share;
  return {.name = s.policy,
          .ranks = ranks,
          .batch = s.batch,
          .micro_batch = s.micro_batch > 0 ? std::min(s.micro_batch, s.batch) : usual,
          .seed = static_cast<std::uint64_t>(s.seed),
          .sync_every = s.sync_every,
          .outer_lr = s.outer_lr,
          .outer_momentum = s.outer_momentum,
          .nesterov = s.outer_nesterov,
          .easgd_alpha = s.easgd_alpha,
          .local_state = s.local_state,
          .window = s.window,
          .drop_tau = s.drop_tau,
          .drop_cap = s.drop_cap,
          .quorum = s.quorum,
          .backup = s.backup,
          .silence = s.silence,
          .late = s.late,
          .max_age = s.max_age,
          .age_weight = s.age_weight,
          .selsync_delta = s.selsync_delta,
          .sync_rate = s.sync_rate,
          .vote_lag = s.vote_lag,
          .sync_max = s.sync_max};
}

Rig::Rig(const Config& config, std::unique_ptr<Communicator> comm)
    : settings_(config.settings),
      rank_(comm->rank()),
      ranks_(comm->size()),
      data_(config.data),
      goal_(config.goal),
      boundary_(config.boundary),
      policy_(make_policy(policy_from(config.settings, comm->size()))),
      model_rule_(policy_->model_rule()),
      builder_(make_model(config.model)),
      steps_per_epoch_((data_.size() + settings_.batch - 1) / settings_.batch),
      schedule_(schedule_from(settings_, data_.size(),
                              samples_until(goal_, data_.size(), settings_.batch))),
      unit_(settings_.micro_batch > 0 || policy_->varies()
                ? policy_from(settings_, ranks_).micro_batch
                : settings_.batch),
      emulation_(std::make_unique<Emulation>(
          settings_, rank_, ranks_,
          goal_.steps > 0 ? goal_.steps : goal_.epochs * steps_per_epoch_,
          static_cast<int>(std::max<std::int64_t>((settings_.batch / ranks_ + unit_ - 1) / unit_, 1)))),
      coverage_(policy_->leaves_out() ? std::make_unique<Coverage>(config.model.classes) : nullptr),
      planner_(std::make_unique<Planner>(Planner::Config{
          .policy = *policy_,
          .dataset_size = data_.size(),
          .batch = settings_.batch,
          .seed = static_cast<std::uint64_t>(settings_.seed),
          .shuffle = settings_.shuffle,
          .rotated = settings_.local_order == "rotated" && policy_->family() == Family::model,
          .gives_back = policy_->leaves_out(),
          .rank = rank_,
          .ranks = ranks_,
          .lookahead = model_rule_.update_each_unit ? 0 : static_cast<int>(std::min<std::int64_t>(settings_.prefetch, 8)),
          .goal = goal_,
          .unit_sizes = unit_sizes()})),
      tracer_(config.tracer),
      comm_(std::make_unique<CommThread>(
          std::move(comm),
          CommThread::Options{.tracer = config.tracer,
                              .control = true,
                              .before_start =
                                  [this](std::size_t bytes, std::int64_t step) {
                                    emulation_->delay_transfer(bytes, step);
                                  }})),
      compute_(Stream::create(config.device, "compute")),
      update_(Stream::create(config.device, "update",
                             config.shared_update && policy_->family() != Family::quorum
                                 ? StreamMode::direct
                                 : StreamMode::threaded)),
      shared_update_(config.shared_update && policy_->family() != Family::quorum) {
  set_compute_threads(config.threads);  // of this thread: oneDNN primitives keep what holds now
  compute_.host([threads = config.threads] { set_compute_threads(threads); });
  compute_.synchronize();
  executor_ = std::make_unique<Executor>(
      builder_, Executor::Options{
                    .device = config.device, .batches = unit_sizes(), .tracer = config.tracer});
  executor_->params().initialize(static_cast<std::uint64_t>(settings_.seed));
  optimizer_ = make_optimizer(optimizer_from(settings_), executor_->params());
  build_engine(config);
}

void Rig::build_engine(const Config& config) {
  const auto bucket_bytes = static_cast<std::int64_t>(settings_.bucket_mb * 1048576);
  const BucketSizes sizes{.bytes = bucket_bytes, .first_bytes = bucket_bytes / 4};
  const bool micro_batches = usual_units().size() > 1 || policy_->varies();
  ParamStore& params = executor_->params();
  buckets_ = std::ssize(plan_buckets(params, sizes).buckets);
  Stream& update = shared_update_ ? compute_ : update_;
  switch (policy_->family()) {
    case Family::gradient:
      engine_ = std::make_unique<RoundEngine>(
          params, *optimizer_, *comm_, compute_, update,
          RoundEngine::Options{.buckets = sizes,
                               .overlap = overlap_from(settings_.overlap),
                               .clip_norm = settings_.clip_norm,
                               .micro_batches = micro_batches,
                               .tracer = config.tracer});
      break;
    case Family::model: {
      auto engine = std::make_unique<LocalEngine>(
          params, *optimizer_, *comm_, compute_, update,
          LocalEngine::Options{.rule = model_rule_,
                               .buckets = sizes,
                               .clip_norm = settings_.clip_norm,
                               .micro_batches = micro_batches,
                               .vote = {.ranks = ranks_,
                                        .delta = settings_.selsync_delta,
                                        .rate = settings_.sync_rate},
                               .vote_lag = settings_.vote_lag,
                               .tracer = config.tracer});
      local_ = engine.get();
      engine_ = std::move(engine);
      break;
    }
    case Family::quorum: {
      auto engine = std::make_unique<QuorumEngine>(
          params, *optimizer_, *comm_, compute_, update,
          QuorumEngine::Options{.buckets = sizes,
                                .clip_norm = settings_.clip_norm,
                                .micro_batches = micro_batches,
                                .early = settings_.participants == "early",
                                .batch = settings_.batch,
                                .tracer = config.tracer,
                                .plan = [this](std::int64_t round) { return open_round(round); },
                                .closed = [this](const RoundResult& r) { close_round(r); },
                                .journal = config.journal,
                                .replay = config.replay,
                                .now = {},
                                .applied = {}});
      quorum_ = engine.get();
      engine_ = std::move(engine);
    }
  }
}

// The comm thread calls back into the planner; it is quiet before anything here goes away.
Rig::~Rig() {
  planner_->close();
  engine_.reset();
}

std::vector<std::int64_t> Rig::shares(std::int64_t global_batch) const {
  std::vector<std::int64_t> shares;
  even_shares(global_batch, ranks_, shares);
  return shares;
}

/// Largest first. Where shares vary, any rest is made up of powers of two.
std::vector<std::int64_t> Rig::unit_sizes() const {
  std::set<std::int64_t, std::greater<>> sizes;
  const std::int64_t size = data_.size(), batch = std::min(settings_.batch, size);
  for (const std::int64_t global : {batch, size % batch}) {
    const auto by_rank = shares(global);
    const bool any_rank = settings_.local_order == "rotated";
    for (int r = 0; r < ranks_; ++r) {
      const std::int64_t own = by_rank[static_cast<std::size_t>(r)];
      if (own == 0 || (r != rank_ && !any_rank)) continue;
      if (own >= unit_) sizes.insert(unit_);
      if (own % unit_ > 0) sizes.insert(own % unit_);
    }
  }
  if (policy_->varies()) {
    sizes.insert(unit_);
    for (std::int64_t part = 1; part < unit_; part *= 2) sizes.insert(part);
  }
  // A rank that never has samples still holds the parameters and joins every exchange.
  if (sizes.empty()) sizes.insert(1);
  return {sizes.begin(), sizes.end()};
}

std::vector<std::int64_t> Rig::usual_units() const {
  return planner_->units_of(
      shares(std::min(settings_.batch, data_.size()))[static_cast<std::size_t>(rank_)]);
}

std::size_t Rig::planned_bytes() const {
  const std::size_t unit_bytes =
      static_cast<std::size_t>(unit_sizes().front() * data_.sample_shape().numel()) * sizeof(float);
  return executor_->params().bytes() + executor_->slab_bytes() + executor_->input_bytes() +
         engine_->bytes() + unit_bytes * static_cast<std::size_t>(prefetch_depth());
}

/// Micro-batches kept ready: so many whole batches, up to what is sensible.
int Rig::prefetch_depth() const {
  const auto units = std::max<std::int64_t>(std::ssize(usual_units()), 1);
  return static_cast<int>(std::max(settings_.prefetch, std::min<std::int64_t>(settings_.prefetch * units, 64)));
}

void Rig::start(const Position& position, std::vector<Range> returned) {
  check(!prefetch_, "a rig is started once");
  enqueued_ = completed_ = position;
  local_updates_ = position.step;
  last_completed_ns_ = now_ns();
  planner_->start(position, std::move(returned));
  prefetch_ = std::make_unique<Prefetcher>(
      data_, unit_sizes().front(), prefetch_depth(),
      [this, last = std::int64_t{0}](LoadRequest& request) mutable {
        if (!planner_->next_unit(request)) return false;
        if (std::exchange(last, request.step) != request.step)
          emulation_->delay_loader(request.step);
        return true;
      },
      tracer_);
  if (quorum_ != nullptr && !finished()) quorum_->start(position.step + 1);
}

// Votes are each rank's own: their texts are gathered, padded to the longest.
std::string Rig::save_policy() {
  if (!model_rule_.vote) return policy_->save();
  const auto gather = [&](View mine, View all) {
    comm_->all_gather(mine, all, {}, "all-gather votes", completed_.step).wait();
  };
  std::string mine = local_->save_votes();
  std::int64_t length = std::ssize(mine);
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(ranks_));
  gather(host_view(&length), host_view(lengths.data(), ranks_));
  const std::int64_t longest = std::ranges::max(lengths);
  mine.resize(static_cast<std::size_t>(longest), ' ');
  std::string all(static_cast<std::size_t>(longest * ranks_), ' ');
  gather(host_view(reinterpret_cast<std::uint8_t*>(mine.data()), longest),
         host_view(reinterpret_cast<std::uint8_t*>(all.data()), longest * ranks_));
  auto texts = nlohmann::json::array();
  for (std::int64_t r = 0; r < ranks_; ++r)
    texts.push_back(all.substr(static_cast<std::size_t>(r * longest),
                               static_cast<std::size_t>(lengths[static_cast<std::size_t>(r)])));
  return texts.dump();
}

void Rig::load_policy(const std::string& state) {
  if (!model_rule_.vote) return policy_->load(state);
  local_->load_votes(nlohmann::json::parse(state).at(static_cast<std::size_t>(rank_)));
}

std::string Rig::inspect_numbers() {
  const Pending& pending = pending_[static_cast<std::size_t>((ended_ + 1) % std::ssize(pending_))];
  if (std::isfinite(pending.loss)) return "";
  std::vector<float> x(static_cast<std::size_t>(data_.sample_shape().numel()));
  std::int32_t y = 0;
  std::string bad;
  for (const std::int64_t id : planner_->own_samples(pending.step)) {
    data_.read(std::span(&id, 1), {.x = x.data(), .y = &y});
    if (std::ranges::all_of(x, [](float v) { return std::isfinite(v); })) continue;
    bad += (bad.empty() ? " " : ", ") + std::to_string(id);
  }
  return "loss " + std::to_string(pending.loss) +
         (bad.empty() ? ", all inputs finite" : ", input not finite in samples" + bad);
}

}  // namespace sidestep
