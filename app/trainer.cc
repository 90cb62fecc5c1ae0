#include "app/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/commands.h"
#include "app/failure.h"
#include "app/host_view.h"
#include "app/options.h"
#include "app/signals.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "io/trace_file.h"

namespace sidestep {

Trainer::Trainer(Settings& settings, MpiJob& job)
    : settings_(settings), job_(job), start_ns_(now_ns()), world_(job.world()) {}

Trainer::~Trainer() { set_on_terminate(nullptr); }

int Trainer::run() {
  agree_on_start();
  claim_folder();
  take_over_checkpoint();
  open_inputs();
  build();
  restore();
  if (goal_.reached(start_)) {
    log_info(fmt::format("nothing to do: step {} (epoch {}) is done ({})", start_.step,
                         start_.cursor.epoch, resumed_file_));
    return static_cast<int>(Exit::done);
  }
  announce();
  set_mark();
  recorder_ = std::make_unique<Recorder>(Recorder::Config{.settings = settings_,
                                                          .folder = folder_ ? &*folder_ : nullptr,
                                                          .ranks = ranks_,
                                                          .rank = job_.rank(),
                                                          .dataset_size = data_.train->size(),
                                                          .steps_per_epoch = rig_->steps_per_epoch(),
                                                          .total_steps = total_steps(),
                                                          .resumed = !resumed_file_.empty(),
                                                          .start = start_,
                                                          .injector = injector(),
                                                          .round_steps = rig_->emulation().round_steps()});
  if (leads() && rig_->policy().family() == Family::quorum) {
    const std::lock_guard lock(journal_mutex_);
    journal_.emplace(folder_->journal(),
                     resumed_file_.empty() ? std::nullopt : std::optional(start_.step));
  }
  recorder_->summarize(ending("running"));  // what is found if the run does not end by itself
  loop();
  const bool stopped = !goal_.reached(rig_->position());
  end(stopped ? "stopped" : "done");
  return static_cast<int>(stopped ? Exit::stopped : Exit::done);
}

// A round is completed after the next one has been enqueued, except where the weights are looked at
// and where the policy needs its result first.
void Trainer::loop() try {
  rig_->start(start_, returned_);
  while (!rig_->finished()) {
    progress_at(rig_->position().step, Phase::compute);
    rig_->enqueue(wants_to_stop());
    while (rig_->outstanding() > rig_->may_lag()) complete();
    if (leads()) saver_->poll();
  }
  while (rig_->outstanding() > 0) complete();
  if (rig_->position().step > start_.step && last_save_step_ != rig_->position().step)
    save(rig_->position().step);
} catch (const Error& error) {
  if (error.code() == Exit::numbers) explain_numbers(error);
  throw;
}

/// `step`: the last one completed. The mark names the one that this rank is at.
void Trainer::progress_at(std::int64_t step, Phase phase) {
  heartbeat_->set_progress(step, phase);
  mark_->set(phase == Phase::compute ? rig_->next_step() : step + 1, to_string(phase));
}

// A rank whose own part is done waits for others, and is not blamed for that.
void Trainer::complete() {
  rig_->wait_computed();
  progress_at(rig_->position().step, Phase::exchange);
  handle(rig_->complete());
}

void Trainer::handle(const StepReport& report) {
  std::optional<EvalResult> eval;
  watch(report);
  if (is_eval_step(report.after)) eval = evaluate(report.after.step);
  recorder_->step(report, eval, *detector_);
  review_classes(report);
  if (is_save_step(report.after)) save(report.after.step);
}

/// Whether some class gets less than its due; now and then, at the same rounds on all ranks. In the
/// quorum family other collectives may run only where rounds rest.
void Trainer::review_classes(const StepReport& report) {
  if (rig_->coverage() == nullptr) return;
  const bool rests = is_save_step(report.after) || is_eval_step(report.after);
  const bool quorum = rig_->policy().family() == Family::quorum;
  if (!rests && (quorum || report.after.step % settings_.ranks_every != 0)) return;
  const std::string starved = rig_->coverage()->review(rig_->comm(), report.after.step);
  if (leads() && !starved.empty()) log_warning(fmt::format("step {}: {}", report.after.step, starved));
}

/// What the round's times say of the ranks, and what the policy has decided by them.
void Trainer::watch(const StepReport& report) {
  detector_->observe(report.after.step, report.round.entries);
  const std::vector<DetectorEvent> events = detector_->take_events();
  const std::string news = rig_->policy().news();
  if (!leads()) return;
  for (const DetectorEvent& event : events)
    log_warning(describe(event, event.rank < 0 ? "" : ranks_[static_cast<std::size_t>(event.rank)].host));
  if (!news.empty()) log_info(fmt::format("step {}: {}", report.after.step, news));
}

// The folder is there before any rank makes its mark.
void Trainer::set_mark() {
  std::int64_t token = 0;
  if (leads()) {
    std::error_code ignored;  // a job without marks trains as well
    std::filesystem::create_directory(folder_->marks(), ignored);
  }
  rig_->comm().all_reduce(host_view(&token), Reduce::sum, {}, "marks", 0).wait();
  mark_ = std::make_unique<RankMark>(RunFolder::marks_in(settings_.out), job_.rank(), job_.host());
  set_on_terminate(mark_->ended());
}

void Trainer::remove_mark() {
  set_on_terminate(nullptr);
  mark_->set(rig_->position().step, to_string(Phase::end));
  if (leads()) remove_marks(folder_->marks());
}

bool Trainer::wants_to_stop() const {
  const double seconds = static_cast<double>(now_ns() - start_ns_) * 1e-9;
  return stop_requested() != StopRequest::none ||
         (settings_.max_time.seconds > 0 && seconds > settings_.max_time.seconds);
}

bool Trainer::is_save_step(const Position& position) const {
  if (goal_.reached(position)) return true;
  return settings_.checkpoint_every > 0 ? position.step % settings_.checkpoint_every == 0
                                        : position.cursor.position == 0;
}

bool Trainer::is_eval_step(const Position& position) const {
  if (!evaluator_) return false;
  const Interval& every = settings_.eval_every;
  if (every.steps == 0 && every.epochs == 0) return false;
  if (goal_.reached(position)) return true;
  return every.steps > 0
             ? position.step % every.steps == 0
             : position.cursor.position == 0 && position.cursor.epoch % every.epochs == 0;
}

std::optional<EvalResult> Trainer::evaluate(std::int64_t step) {
  recorder_->pause();
  progress_at(step, Phase::evaluate);
  rig_->engine().quiesced().wait();
  rig_->engine().show();
  const EvalResult result = evaluator_->run(rig_->compute(), rig_->comm(), step);
  recorder_->say(fmt::format("step {}: test accuracy {:.2f} % ({} of {}), test loss {:.4f}", step,
                             100 * result.accuracy(), result.correct, result.samples, result.loss));
  const double value = settings_.keep_best == "loss" ? -result.loss : result.accuracy();
  if (settings_.keep_best != "none" && (!best_ || value > *best_)) {
    best_ = value;
    if (leads()) saver_->save_best(make_content(rig_->params(), state()), step);
  }
  rig_->engine().hide();
  last_eval_ = result;
  last_eval_step_ = step;
  recorder_->go_on();
  return result;
}

RunState Trainer::state() const {
  return {.position = rig_->position(),
          .returned = rig_->returned(),
          .seed = settings_.seed,
          .ranks = job_.size(),
          .config = config_text(settings_),
          .model = model_,
          .data = data_.train->description(),
          .data_digest = data_.train->digest(),
          .optimizer = settings_.optimizer,
          .policy = settings_.policy,
          .policy_state = policy_state_,
          .best = best_};
}

// All ranks are here at the same round, with nothing in flight; state of their own goes to rank 0.
void Trainer::save(std::int64_t step) {
  last_save_step_ = step;
  progress_at(step, Phase::save);
  const std::int64_t begin = now_ns();
  rig_->engine().quiesced().wait();
  CheckpointContent content;
  policy_state_ = rig_->save_policy();
  rig_->engine().show();
  if (leads()) content = make_content(rig_->params(), state());
  gather_extras(rig_->engine(), rig_->params(), rig_->comm(), leads() ? &content : nullptr);
  rig_->engine().hide();
  if (leads()) {
    recorder_->flush_files();
    flush_journal();
    saver_->save(std::move(content), step);
  }
  rig_->add_save_ns(now_ns() - begin);
}

void Trainer::flush_journal() {
  const std::lock_guard lock(journal_mutex_);
  if (journal_) journal_->flush();
}

std::string Trainer::newest_checkpoint() const {
  return saver_ && !saver_->last_file().empty() ? saver_->last_file() : resumed_file_;
}

Recorder::Ending Trainer::ending(const std::string& status) const {
  const bool begun = rig_->position().step > start_.step;
  return {.status = status,
          .position = begun ? rig_->position() : start_,
          .seconds = static_cast<double>(now_ns() - start_ns_) * 1e-9,
          .test = last_eval_,
          .best = best_,
          .checkpoint = newest_checkpoint(),
          .planned_bytes = planned_bytes(),
          .classes = rig_->coverage() != nullptr ? rig_->coverage()->totals()
                                                 : std::vector<Coverage::Class>()};
}

void Trainer::end(const std::string& status) {
  if (leads()) saver_->finish();
  const std::int64_t last_step = rig_->position().step;
  if (evaluator_ && status == "done" && last_eval_step_ != last_step) evaluate(last_step);
  if (leads()) saver_->finish();
  recorder_->flush(rig_->comm(), rig_->unsent_times(), *detector_);
  flush_journal();
  progress_at(last_step, Phase::end);
  remove_mark();
  recorder_->summarize(ending(status));
  if (tracer_) write_trace_file();
  if (leads() && status == "stopped")
    log_info(fmt::format("stopped on request after step {} of {}; saved {}; go on with --resume latest",
                         rig_->position().step, total_steps(), saver_->last_file()));
  if (leads() && status == "done") log_info(fmt::format("done: {}", folder_->path().string()));
}

void Trainer::write_trace_file() {
  rig_->compute().synchronize();
  rig_->engine().quiesced().wait();
  rig_->comm().remove_agent(*heartbeat_);
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
  const std::int64_t last = std::min(settings_.trace.last - 1, rig_->position().step);
  log_info(write_trace(folder_->trace(), all, settings_.trace.first, last));
}

// All ranks see the same reduced gradient, so all are here at the same step. Which rank it came from,
// and from which samples, is asked only now.
void Trainer::explain_numbers(const Error& error) {
  const std::string mine = rig_->inspect_numbers();
  if (leads()) saver_->finish();
  rig_->comm().remove_agent(*heartbeat_);
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
