#include "app/recorder.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

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

constexpr std::size_t kAges = 33;  ///< the last one also counts what is older

/// Reorders the values.
double median(std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// (sum x)^2 / (n sum x^2): 1 when all ranks gave as much.
double jain_index(const std::vector<std::int64_t>& x) {
  double sum = 0, squares = 0;
  for (const std::int64_t value : x) {
    sum += static_cast<double>(value);
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  return squares > 0 ? sum * sum / (static_cast<double>(x.size()) * squares) : 1;
}

}  // namespace

Recorder::Recorder(const Config& config)
    : config_(config),
      progress_(stdout, {.terminal = stdout_is_terminal(),
                         .every_seconds = config.settings.log_every.seconds}),
      interval_first_(config.start.step + 1),
      last_step_(config.start.step),
      intervals_(config.ranks.size()),
      rank_samples_(config.ranks.size()),
      ages_(kAges) {
  for (Interval& interval : intervals_)
    interval.rounds.reserve(static_cast<std::size_t>(config.settings.ranks_every) + 1);
  run_.by_rank.resize(config.ranks.size());
  run_.by_age.resize(kAges);
  if (config.folder == nullptr) return;
  const auto resumed =
      config.resumed ? std::optional(config.start.step) : std::optional<std::int64_t>();
  metrics_.emplace(config.folder->metrics(), resumed);
  rank_times_.emplace(config.folder->ranks(), resumed);
}

void Recorder::say(const std::string& line) {
  if (metrics_) progress_.say(line);
}

/// Ranks, ascending, that were delayed on purpose in any step of a round.
std::vector<int> Recorder::delayed_ranks(std::int64_t round) const {
  std::set<int> ranks;
  if (config_.injector == nullptr) return {};
  for (std::int64_t step = (round - 1) * config_.round_steps + 1; step <= round * config_.round_steps; ++step)
    for (const int rank : config_.injector->delayed_ranks(step)) ranks.insert(rank);
  return {ranks.begin(), ranks.end()};
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
  line.bytes = round.bytes;
  line.late_samples = late_;
  line.written_off = written_off_;
  line.flushed = round.flushed;
  line.rank_samples = rank_samples_;
  line.ages = std::span(ages_).first(last_age());
  const std::vector<int> delayed = delayed_ranks(line.step);
  line.delayed = delayed;
  if (eval) {
    line.eval_loss = eval->loss;
    line.eval_accuracy = eval->accuracy();
    line.eval_correct = eval->correct;
    line.eval_samples = eval->samples;
  }
  metrics_->write(line);
}

void Recorder::count_participation(const RoundResult& round) {
  late_ = written_off_ = 0;
  std::ranges::fill(ages_, 0);
  for (std::size_t r = 0; r < round.entries.size(); ++r) {
    const RankEntry& entry = round.entries[r];
    rank_samples_[r] = entry.samples;
    ages_[0] += entry.samples;
    if (entry.written_off != 0) {
      written_off_ += entry.late_samples;
    } else if (entry.late_round > 0) {
      late_ += entry.late_samples;
      rank_samples_[r] += entry.late_samples;
      ages_[std::min(static_cast<std::size_t>(round.step - entry.late_round), kAges - 1)] +=
          entry.late_samples;
    }
    run_.by_rank[r] += rank_samples_[r];
  }
  for (std::size_t age = 0; age < kAges; ++age) run_.by_age[age] += ages_[age];
  run_.applied += round.samples + late_;
  run_.late += late_;
  run_.written_off += written_off_;
  run_.bytes += round.bytes;
  ++run_.rounds;
}

std::size_t Recorder::last_age() const {
  std::size_t count = kAges;
  while (count > 0 && ages_[count - 1] == 0) --count;
  return count;
}

void Recorder::add(const RankEntry& entry, Interval& interval) const {
  interval.compute += seconds(entry.compute_ns);
  interval.input += seconds(entry.input_ns);
  interval.exposed += seconds(entry.exposed_ns);
  interval.save += seconds(entry.save_ns);
  interval.exchange += seconds(entry.exchange_ns);
  interval.units += entry.compute_units;
  if (entry.compute_ns > 0 && interval.rounds.size() < interval.rounds.capacity())
    interval.rounds.push_back(seconds(entry.compute_ns));
}

void Recorder::step(const StepReport& r, const std::optional<EvalResult>& eval,
                    const Detector& detector) {
  last_step_ = r.after.step;
  count_participation(r.round);
  for (std::size_t rank = 0; rank < intervals_.size(); ++rank) {
    add(r.round.entries[rank], intervals_[rank]);
    intervals_[rank].samples += rank_samples_[rank];
  }
  training_seconds_ += seconds(r.step_ns);
  total_.compute += seconds(r.compute_ns);
  total_.input += seconds(r.input_wait_ns);
  total_.exposed += seconds(r.exposed_ns);
  total_.save += seconds(r.round.entries[static_cast<std::size_t>(config_.rank)].save_ns);
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
  if (r.after.step / config_.settings.ranks_every > (interval_first_ - 1) / config_.settings.ranks_every)
    write_intervals(r.after.step, detector);
}

void Recorder::write_intervals(std::int64_t last_step, const Detector& detector) {
  for (const RankInfo& rank : config_.ranks) {
    Interval& interval = intervals_[static_cast<std::size_t>(rank.rank)];
    if (rank_times_)
      rank_times_->write(RankMetrics{.first_step = interval_first_,
                                     .last_step = last_step,
                                     .rank = rank.rank,
                                     .host = rank.host,
                                     .compute_seconds = interval.compute,
                                     .input_wait_seconds = interval.input,
                                     .exposed_seconds = interval.exposed,
                                     .save_seconds = interval.save,
                                     .samples = interval.samples,
                                     .exchange_seconds = interval.exchange,
                                     .micro_batches = interval.units,
                                     .step_median_seconds = median(interval.rounds),
                                     .state = to_string(detector.state(rank.rank))});
    interval.rounds.clear();
    interval = {.rounds = std::move(interval.rounds)};
  }
  interval_first_ = last_step + 1;
}

void Recorder::flush(CommThread& comm, const RankEntry& unsent, const Detector& detector) {
  std::vector<RankEntry> tails(config_.ranks.size());
  RankEntry mine = unsent;
  comm.all_gather(host_view(reinterpret_cast<std::int64_t*>(&mine), kEntryFields),
                  host_view(reinterpret_cast<std::int64_t*>(tails.data()),
                            static_cast<std::int64_t>(kEntryFields * tails.size())),
                  {}, "all-gather times", last_step_)
      .wait();
  for (std::size_t r = 0; r < tails.size(); ++r) add(tails[r], intervals_[r]);
  total_.save += seconds(unsent.save_ns);
  if (last_step_ >= interval_first_) write_intervals(last_step_, detector);
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
      {"training_seconds", training_seconds_},
      {"samples_per_second", e.seconds > 0 ? trained / e.seconds : 0},
      {"planned_bytes_per_rank", e.planned_bytes},
      {"checkpoint", e.checkpoint},
  };
  json["rank_0_seconds"] = {{"compute", total_.compute},
                            {"input_wait", total_.input},
                            {"exposed_exchange", total_.exposed},
                            {"saving", total_.save}};
  json["rounds"] = run_.rounds;
  json["samples_applied"] = run_.applied;
  json["samples_applied_late"] = run_.late;
  json["samples_written_off"] = run_.written_off;
  json["samples_by_rank"] = run_.by_rank;
  json["samples_by_age"] = run_.by_age;
  json["participation"] = jain_index(run_.by_rank);
  for (const Coverage::Class& c : e.classes)
    json["samples_by_class"].push_back({{"handed_out", c.handed_out}, {"applied", c.applied}});
  json["bytes_exchanged_per_rank"] = run_.bytes;
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
