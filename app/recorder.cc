#include "app/recorder.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/host_view.h"
#include "app/versions.h"
#include "core/base/log.h"
#include "io/output_file.h"

namespace sidestep {
namespace {

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

double per_sample(double sum, std::int64_t weight) {
  return weight > 0 ? sum / static_cast<double>(weight) : 0;
}

}  // namespace

Recorder::Recorder(const Config& config)
    : config_(config),
      progress_(stdout, {.terminal = stdout_is_terminal(),
                         .every_seconds = config.settings.log_every.seconds}),
      interval_first_(config.start.step + 1),
      last_step_(config.start.step),
      all_(kTimes * config.ranks.size()) {
  if (config.folder == nullptr) return;
  const auto resumed =
      config.resumed ? std::optional(config.start.step) : std::optional<std::int64_t>();
  metrics_.emplace(config.folder->metrics(), resumed);
  rank_times_.emplace(config.folder->ranks(), resumed);
}

void Recorder::say(const std::string& line) {
  if (metrics_) progress_.say(line);
}

void Recorder::write_metrics(const StepReport& r, const std::optional<EvalResult>& eval) {
  const RoundResult& round = r.round;
  StepMetrics line;
  line.step = r.after.step;
  line.epoch = (r.after.samples_seen - 1) / config_.dataset_size;
  line.samples_seen = r.after.samples_seen;
  line.samples = round.samples;
  line.weight = round.weight;
  line.loss = per_sample(round.loss_sum, round.weight);
  line.accuracy = per_sample(static_cast<double>(round.correct), round.weight);
  line.lr = r.lr;
  line.grad_norm = round.grad_norm;
  line.participants = round.participants;
  line.index_digest = round.index_digest;
  line.seconds = seconds(r.step_ns);
  line.input_wait_seconds = seconds(r.input_wait_ns);
  line.exposed_seconds = seconds(r.exposed_ns);
  if (eval) {
    line.eval_loss = eval->loss;
    line.eval_accuracy = eval->accuracy();
    line.eval_correct = eval->correct;
    line.eval_samples = eval->samples;
  }
  metrics_->write(line);
}

void Recorder::step(const StepReport& r, const std::optional<EvalResult>& eval, CommThread& comm) {
  last_step_ = r.after.step;
  const std::array<double, kTimes> times = {seconds(r.compute_ns), seconds(r.input_wait_ns),
                                            seconds(r.exposed_ns), 0,
                                            static_cast<double>(r.own_samples)};
  for (std::size_t i = 0; i < kTimes; ++i) {
    mine_[i] += times[i];
    totals_[i] += times[i];
  }
  last_loss_ = per_sample(r.round.loss_sum, r.round.weight);
  if (metrics_) {
    if (eval || r.after.step % config_.settings.metrics_every == 0 ||
        r.after.step == config_.total_steps)
      write_metrics(r, eval);
    progress_.update({.epoch = (r.after.step - 1) / config_.steps_per_epoch,
                      .epochs = config_.settings.steps > 0 ? 0 : config_.settings.epochs,
                      .step = r.after.step,
                      .steps = config_.total_steps,
                      .samples_seen = r.after.samples_seen,
                      .loss = last_loss_,
                      .lr = r.lr});
  }
  if (r.after.step % config_.settings.ranks_every == 0) gather_times(r.after.step, comm);
}

// The exchange of one interval's times runs beside training; its lines are written at the next.
void Recorder::gather_times(std::int64_t last_step, CommThread& comm) {
  write_times();
  mine_[3] = save_seconds_;
  sent_ = mine_;
  mine_ = {};
  save_seconds_ = 0;
  gathered_first_ = interval_first_;
  gathered_last_ = last_step;
  interval_first_ = last_step + 1;
  gathering_ = comm.all_gather(host_view(sent_.data(), kTimes), host_view(all_.data(), static_cast<std::int64_t>(all_.size())), {},
                               "all-gather times", last_step);
}

void Recorder::write_times() {
  if (!gathering_) return;
  gathering_->wait();
  gathering_.reset();
  if (!rank_times_) return;
  for (const RankInfo& rank : config_.ranks) {
    const double* times = all_.data() + static_cast<std::size_t>(rank.rank) * kTimes;
    rank_times_->write(RankMetrics{.first_step = gathered_first_,
                                   .last_step = gathered_last_,
                                   .rank = rank.rank,
                                   .host = rank.host,
                                   .compute_seconds = times[0],
                                   .input_wait_seconds = times[1],
                                   .exposed_seconds = times[2],
                                   .save_seconds = times[3],
                                   .samples = static_cast<std::int64_t>(times[4])});
  }
}

void Recorder::flush(CommThread& comm) {
  if (last_step_ >= interval_first_)
    gather_times(last_step_, comm);
  write_times();
  progress_.flush();
  flush_files();
}

void Recorder::flush_files() {
  if (metrics_) metrics_->flush();
  if (rank_times_) rank_times_->flush();
}

void Recorder::summarize(const Ending& e) const {
  if (config_.folder == nullptr) return;
  const auto trained = static_cast<double>(e.position.samples_seen - config_.start.samples_seen);
  nlohmann::ordered_json json = {
      {"status", e.status},
      {"version", program_version()},
      {"ranks", config_.ranks.size()},
      {"model", config_.settings.model},
      {"data", config_.settings.data},
      {"policy", config_.settings.policy},
      {"seed", config_.settings.seed},
      {"step", e.position.step},
      {"epoch", e.position.cursor.epoch},
      {"samples_seen", e.position.samples_seen},
      {"train_loss", last_loss_},
      {"seconds", e.seconds},
      {"samples_per_second", e.seconds > 0 ? trained / e.seconds : 0},
      {"planned_bytes_per_rank", e.planned_bytes},
      {"checkpoint", e.checkpoint},
  };
  json["rank_0_seconds"] = {{"compute", totals_[0]},
                            {"input_wait", totals_[1]},
                            {"exposed_exchange", totals_[2]},
                            {"saving", totals_[3]}};
  const bool by_loss = config_.settings.keep_best == "loss";
  if (e.best) json[by_loss ? "best_test_loss" : "best_test_accuracy"] = by_loss ? -*e.best : *e.best;
  json["test_loss"] = nullptr;
  json["test_accuracy"] = nullptr;
  if (e.test) {
    json["test_loss"] = e.test->loss;
    json["test_accuracy"] = e.test->accuracy();
    json["test_correct"] = e.test->correct;
    json["test_samples"] = e.test->samples;
  }
  write_file_atomically(config_.folder->summary(), json.dump(2) + "\n");
}

}  // namespace sidestep
