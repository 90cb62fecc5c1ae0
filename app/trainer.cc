#include "app/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/commands.h"
#include "app/failure.h"
#include "app/options.h"
#include "app/signals.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "io/trace_file.h"

namespace sidestep {

Trainer::Trainer(Settings& settings, MpiJob& job)
    : settings_(settings), job_(job), start_ns_(now_ns()), world_(job.world()) {}

Trainer::~Trainer() = default;

int Trainer::run() {
  agree_on_start();
  claim_folder();
  take_over_checkpoint();
  open_inputs();
  build();
  restore();
  if (start_.step >= last_step_) {
    log_info(fmt::format("nothing to do: step {} of {} is done ({})", start_.step, last_step_,
                         resumed_file_));
    return static_cast<int>(Exit::done);
  }
  announce();
  recorder_ = std::make_unique<Recorder>(Recorder::Config{.settings = settings_,
                                                          .folder = folder_ ? &*folder_ : nullptr,
                                                          .ranks = ranks_,
                                                          .rank = job_.rank(),
                                                          .dataset_size = data_.train->size(),
                                                          .steps_per_epoch =
                                                              rig_->sampler().steps_per_epoch(),
                                                          .total_steps = last_step_,
                                                          .resumed = !resumed_file_.empty(),
                                                          .start = start_});
  recorder_->summarize(ending("running"));  // what is found if the run does not end by itself
  loop();
  const bool stopped = rig_->enqueued().step < last_step_;
  end(stopped ? "stopped" : "done");
  return static_cast<int>(stopped ? Exit::stopped : Exit::done);
}

// A step is completed after the next one has been enqueued, except where the weights are looked at.
void Trainer::loop() try {
  rig_->start(start_);
  while (rig_->enqueued().step < last_step_ && !stopping_) {
    rig_->enqueue(wants_to_stop());
    const Position& position = rig_->enqueued();
    const bool looked_at = is_save_step(position) || is_eval_step(position);
    while (rig_->outstanding() > (looked_at ? 0 : 1)) handle(rig_->complete());
    if (leads()) saver_->poll();
  }
  while (rig_->outstanding() > 0) handle(rig_->complete());
  if (rig_->enqueued().step > start_.step && last_save_step_ != rig_->enqueued().step)
    save(rig_->enqueued().step);
} catch (const Error& error) {
  if (error.code() == Exit::numbers) explain_numbers(error);
  throw;
}

void Trainer::handle(const StepReport& report) {
  stopping_ = stopping_ || report.round.stop_requests > 0;
  std::optional<EvalResult> eval;
  if (is_eval_step(report.after)) eval = evaluate(report.after.step);
  recorder_->step(report, eval, rig_->comm());
  if (is_save_step(report.after)) save(report.after.step);
}

bool Trainer::wants_to_stop() const {
  const double seconds = static_cast<double>(now_ns() - start_ns_) * 1e-9;
  return stop_requested() != StopRequest::none ||
         (settings_.max_time.seconds > 0 && seconds > settings_.max_time.seconds);
}

bool Trainer::is_save_step(const Position& position) const {
  if (position.step >= last_step_) return true;
  return settings_.checkpoint_every > 0 ? position.step % settings_.checkpoint_every == 0
                                        : position.cursor.position == 0;
}

bool Trainer::is_eval_step(const Position& position) const {
  if (!evaluator_) return false;
  const Interval& every = settings_.eval_every;
  if (every.steps == 0 && every.epochs == 0) return false;
  if (position.step >= last_step_) return true;
  return every.steps > 0
             ? position.step % every.steps == 0
             : position.cursor.position == 0 && position.cursor.epoch % every.epochs == 0;
}

std::optional<EvalResult> Trainer::evaluate(std::int64_t step) {
  recorder_->pause();
  rig_->engine().quiesced().wait();
  const EvalResult result = evaluator_->run(rig_->compute(), rig_->comm(), step);
  recorder_->say(fmt::format("step {}: test accuracy {:.2f} % ({} of {}), test loss {:.4f}", step,
                             100 * result.accuracy(), result.correct, result.samples, result.loss));
  const double value = settings_.keep_best == "loss" ? -result.loss : result.accuracy();
  if (settings_.keep_best != "none" && (!best_ || value > *best_)) {
    best_ = value;
    if (leads()) saver_->save_best(make_content(rig_->params(), state()), step);
  }
  last_eval_ = result;
  last_eval_step_ = step;
  recorder_->go_on();
  return result;
}

RunState Trainer::state() const {
  return {.position = rig_->enqueued(),
          .seed = settings_.seed,
          .ranks = job_.size(),
          .config = config_text(settings_),
          .model = model_,
          .data = data_.train->description(),
          .data_digest = data_.train->digest(),
          .optimizer = settings_.optimizer,
          .policy = settings_.policy,
          .best = best_};
}

void Trainer::save(std::int64_t step) {
  last_save_step_ = step;
  if (!leads()) return;
  const std::int64_t begin = now_ns();
  rig_->engine().quiesced().wait();
  recorder_->flush_files();
  saver_->save(make_content(rig_->params(), state()), step);
  recorder_->add_save_seconds(static_cast<double>(now_ns() - begin) * 1e-9);
}

std::string Trainer::newest_checkpoint() const {
  return saver_ && !saver_->last_file().empty() ? saver_->last_file() : resumed_file_;
}

Recorder::Ending Trainer::ending(const std::string& status) const {
  const bool begun = rig_->enqueued().step > start_.step;
  return {.status = status,
          .position = begun ? rig_->enqueued() : start_,
          .seconds = static_cast<double>(now_ns() - start_ns_) * 1e-9,
          .test = last_eval_,
          .best = best_,
          .checkpoint = newest_checkpoint(),
          .planned_bytes = planned_bytes()};
}

void Trainer::end(const std::string& status) {
  if (leads()) saver_->finish();
  if (evaluator_ && status == "done" && last_eval_step_ != last_step_) evaluate(last_step_);
  if (leads()) saver_->finish();
  recorder_->flush(rig_->comm());
  recorder_->summarize(ending(status));
  if (tracer_) write_trace_file();
  if (leads() && status == "stopped")
    log_info(fmt::format("stopped on request after step {} of {}; saved {}; go on with --resume latest",
                         rig_->enqueued().step, last_step_, saver_->last_file()));
  if (leads() && status == "done") log_info(fmt::format("done: {}", folder_->path().string()));
}

void Trainer::write_trace_file() {
  rig_->compute().synchronize();
  rig_->engine().quiesced().wait();
  const auto comm = rig_->comm().stop();
  const RankTrace mine{.rank = job_.rank(),
                       .host = job_.host(),
                       .offset_ns = clock_offset_ns_,
                       .spans = tracer_->spans(),
                       .names = {},
                       .dropped = tracer_->dropped()};
  const auto texts = gather_texts(*comm, serialize(mine));
  if (!leads()) return;
  std::vector<RankTrace> all;
  for (const std::string& text : texts) all.push_back(parse_rank_trace(text));
  // The run may have ended inside the window, or before it.
  const std::int64_t last = std::min(settings_.trace.last - 1, rig_->enqueued().step);
  log_info(write_trace(folder_->trace(), all, settings_.trace.first, last));
}

// All ranks see the same reduced gradient, so all are here at the same step. Which rank it came from,
// and from which samples, is asked only now.
void Trainer::explain_numbers(const Error& error) {
  const std::string mine = rig_->inspect_numbers();
  if (leads()) saver_->finish();
  const auto comm = rig_->comm().stop();
  std::string culprits;
  const auto texts = gather_texts(*comm, mine);
  for (std::size_t rank = 0; rank < texts.size(); ++rank)
    if (!texts[rank].empty()) culprits += fmt::format("; rank {}: {}", rank, texts[rank]);
  const std::string kept = broadcast_text(*comm, leads() ? newest_checkpoint() : "", 0);
  throw AgreedError(Exit::numbers,
                    fmt::format("{}{}; {}", error.what(), culprits,
                                kept.empty() ? "no checkpoint was saved yet"
                                             : "last finite checkpoint: " + kept));
}

int run_train(Settings& settings, MpiJob& job) {
  Trainer trainer(settings, job);
  try {
    return trainer.run();
  } catch (const AgreedError&) {
    throw;
  } catch (...) {
    // The others do not know: end the job before the trainer's threads wait for them.
    trainer.give_up();
    return end_job(std::current_exception(), job.rank(), job.size(), MpiJob::abort);
  }
}

}  // namespace sidestep
