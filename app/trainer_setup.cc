#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "app/agreement.h"
#include "app/banner.h"
#include "app/failure.h"
#include "app/host_view.h"
#include "app/options.h"
#include "app/trainer.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "io/output_file.h"

namespace sidestep {
namespace {

constexpr std::size_t kTraceSpans = 200'000;  // a rank; about 25 MB of trace.json

/// The offset that turns this rank's clock into rank 0's: the median of some barrier exits.
std::int64_t measure_clock_offset(Communicator& comm) {
  std::vector<std::int64_t> offsets;
  for (int round = 0; round < 9; ++round) {
    barrier(comm);
    const std::int64_t mine = now_ns();
    std::int64_t leader = mine;
    broadcast(comm, host_view(&leader), 0);
    offsets.push_back(leader - mine);
  }
  std::ranges::nth_element(offsets, offsets.begin() + 4);
  return offsets[4];
}

}  // namespace

Device choose_device(const std::string& wanted, int local_rank) {
  // Not every op has a CUDA form yet, so a GPU is taken only where it is asked for.
  if (wanted != "cuda") return {};
  const CudaProbe probe = probe_cuda();
  if (probe.devices > 0) return {DeviceKind::cuda, local_rank % probe.devices};
  fail(Exit::device,
       fmt::format("--device cuda: expected a GPU, found none ({}); use --device cpu",
                   probe.compiled ? probe.explanation : "the program was built without CUDA"));
}

int compute_threads_for(const Settings& settings, const std::vector<RankInfo>& ranks, int rank) {
  return settings.threads > 0 ? static_cast<int>(settings.threads) : threads_for(ranks, rank);
}

bool shares_update_thread(const Settings& settings, int threads) {
  return settings.update_thread == "shared" || (settings.update_thread == "auto" && threads <= 1);
}

RankInfo own_info(const MpiJob& job, Device device) {
  return {.rank = job.rank(),
          .host = job.host(),
          .local_rank = job.local_rank(),
          .device = to_string(device),
          .device_id = "",
          .cores = bound_cores()};
}

void Trainer::agree_on_start() {
  together(*world_, [&] { device_ = choose_device(settings_.device, job_.local_rank()); });
  agree(*world_, build_facts());
  agree(*world_, settings_facts(settings_));
  ranks_ = gather_rank_info(*world_, own_info(job_, device_));
}

void Trainer::claim_folder() {
  storage_ = std::make_unique<StorageThread>();
  together(*world_, [&] {
    if (!leads()) return;
    std::string wanted = settings_.resume;
    const std::filesystem::path checkpoints = std::filesystem::path(settings_.out) / "checkpoints";
    const bool saved = !wanted.empty() && !CheckpointFolder(checkpoints).list().empty();
    if (wanted == "auto") {
      wanted = saved ? "latest" : "";
      if (!saved) log_info("resume: no checkpoint in " + settings_.out + ", a fresh start");
    }
    const bool continues = wanted == "latest" || (!wanted.empty() && saved);
    // With auto, a run that ended before its first checkpoint has nothing to lose.
    const bool replaces = settings_.replace || (settings_.resume == "auto" && !saved);
    folder_.emplace(settings_.out, replaces    ? RunFolder::Mode::replace
                                   : continues ? RunFolder::Mode::resume
                                               : RunFolder::Mode::fresh);
    if (const auto stopped = read_marks(folder_->marks()))
      log_warning(fmt::format("the last job in {} ended without a word: {}", settings_.out, *stopped));
    remove_marks(folder_->marks());
    std::vector<std::filesystem::path> outputs{folder_->config(), folder_->metrics(), folder_->ranks(), folder_->summary()};
    if (settings_.trace.last > settings_.trace.first) outputs.push_back(folder_->trace());
    for (const auto& file : outputs) check_output_path(file, "--out");
    CheckpointFolder(folder_->checkpoints()).remove_leftovers();
    if (wanted.empty() && settings_.init_from.empty()) return;
    storage_->read_now([&] {
      if (wanted == "latest") {
        auto [file, content] =
            CheckpointFolder(folder_->checkpoints()).latest([](const std::string& line) {
              log_warning(line);
            });
        resumed_file_ = file.string();
        content_ = std::move(content);
      } else {
        content_ = read_checkpoint(wanted.empty() ? settings_.init_from : wanted);
        resumed_file_ = wanted;
      }
    });
  });
}

// Rank 0 has looked and read; the others are told (K05).
void Trainer::take_over_checkpoint() {
  std::string told;
  together(*world_, [&] {
    if (resumed_file_.empty()) return;
    const RunState s = read_state(*content_, resumed_file_);
    nlohmann::json json = {{"file", resumed_file_},
                           {"config", s.config},
                           {"step", s.position.step},
                           {"samples", s.position.samples_seen},
                           {"epoch", s.position.cursor.epoch},
                           {"position", s.position.cursor.position},
                           {"ranks", s.ranks},
                           {"data", s.data},
                           {"data_digest", s.data_digest},
                           {"policy", s.policy},
                           {"policy_state", s.policy_state},
                           {"seed", s.seed}};
    for (const Range& range : s.returned) json["returned"].push_back({range.begin, range.end});
    if (s.best) json["best"] = *s.best;
    told = json.dump();
  });
  told = broadcast_text(*world_, told, 0);
  if (told.empty()) {
    agree_on_seed(*world_, settings_);
    return;
  }
  together(*world_, [&] {
    const auto json = nlohmann::json::parse(told);
    resumed_file_ = json["file"];
    for (const std::string& change : apply_resume(settings_, json["config"]))
      if (leads()) log_info("resume: " + change);
    settings_.seed = json["seed"];
    start_ = {.step = json["step"],
              .samples_seen = json["samples"],
              .cursor = {json["epoch"], json["position"]}};
    resumed_data_ = {json["data"], json["data_digest"]};
    resumed_ranks_ = json["ranks"];
    resumed_policy_ = json["policy"];
    policy_state_ = json["policy_state"];
    if (json.contains("returned"))
      for (const auto& range : json["returned"]) returned_.push_back({range[0], range[1]});
    if (json.contains("best")) best_ = json["best"].get<double>();
    if (leads() && json["ranks"] != job_.size())
      log_info(fmt::format("resume: the checkpoint is of {} ranks, this job has {}; the data goes on "
                           "at the same sample",
                           json["ranks"].get<int>(), job_.size()));
  });
}

void Trainer::open_inputs() {
  together(*world_, [&] {
    const auto classes = settings_.classes > 0 ? std::optional(settings_.classes) : std::nullopt;
    data_ = open_data(settings_.data, static_cast<std::uint64_t>(settings_.seed), *storage_, classes);
    model_ = model_from(settings_, *data_.train);
    if (resumed_data_ && resumed_data_->second != data_.train->digest())
      fail(Exit::checkpoint,
           fmt::format("{}: expected the data it was trained on ({}), found other data ({}); give that "
                       "--data, or start anew from its weights with --init-from",
                       resumed_file_, resumed_data_->first, data_.train->description()));
    if (settings_.keep_best != "none" && !data_.test)
      fail(Exit::settings, "--keep-best: expected data with a test part, found none; name one "
                           "(hdf5:FILE;test=FILE) or use --keep-best none");
  });
  agree(*world_, {{"data size", std::to_string(data_.train->size())},
                  {"data digest", fmt::format("{:016x}", data_.train->digest())},
                  {"test digest", data_.test ? fmt::format("{:016x}", data_.test->digest()) : ""}});
}

void Trainer::build() {
  goal_ = {.steps = settings_.steps, .epochs = settings_.epochs};
  if (settings_.trace.last > settings_.trace.first) {
    tracer_ = std::make_unique<Tracer>(kTraceSpans);
    tracer_->set_window(settings_.trace.first, settings_.trace.last - 1);
    clock_offset_ns_ = measure_clock_offset(*world_);
  }
  load_replay();
  threads_ = compute_threads_for(settings_, ranks_, job_.rank());
  shared_update_ = shares_update_thread(settings_, threads_);
  const Rig::Config config{.settings = settings_,
                           .device = device_,
                           .model = model_,
                           .data = *data_.train,
                           .goal = goal_,
                           .threads = threads_,
                           .shared_update = shared_update_,
                           .tracer = tracer_.get(),
                           .boundary =
                               [this](const Position& position) {
                                 return is_save_step(position) || is_eval_step(position);
                               },
                           .replay = replay_,
                           .journal = [this](const JournalLine& line) { write_journal(line); }};
  together(*world_, [&] {  // before the rig takes the communicator
    make_model(model_);
    make_policy(policy_from(settings_, job_.size()));
    check_limits(settings_.late_limit.seconds, settings_.stall_limit.seconds,
                 settings_.lost_limit.seconds);
    Injector(settings_.inject, 0, job_.size(), 1'000'000);
  });
  const auto talk = job_.world();  // memory may be short on some hosts, or on all
  together(*talk, [&] {
    rig_ = std::make_unique<Rig>(config, std::move(world_));
    if (!data_.test) return;
    const std::int64_t batch = std::max<std::int64_t>(settings_.eval_batch / job_.size(), 1);
    evaluator_ = std::make_unique<Evaluator>(rig_->builder(), rig_->executor().shared_params(),
                                             *data_.test, batch, job_.rank(), job_.size());
  });
  std::vector<std::string> hosts;
  for (const RankInfo& rank : ranks_) hosts.push_back(rank.host);
  heartbeat_ = std::make_unique<Heartbeat>(
      job_.rank(), hosts,
      Heartbeat::Options{.late_s = settings_.late_limit.seconds,
                         .stalled_s = settings_.stall_limit.seconds,
                         .lost_s = settings_.lost_limit.seconds});
  rig_->comm().add_agent(*heartbeat_);
  detector_ = std::make_unique<Detector>(Detector::Options{.ranks = job_.size()});
  if (leads())
    saver_ = std::make_unique<Saver>(CheckpointFolder(folder_->checkpoints()), *storage_,
                                     static_cast<int>(settings_.keep), tracer_.get());
}

// Rank 0 fills its parameters; all receive the same bits, or the same error.
void Trainer::restore() {
  ParamStore& params = rig_->params();
  const bool weights_only = resumed_file_.empty() && !settings_.init_from.empty();
  if (!weights_only && resumed_file_.empty()) return;
  std::array<std::uint8_t, 4096> told{};  // "4 message", empty if all is well
  if (leads()) try {
      restore_weights(*content_, weights_only ? settings_.init_from : resumed_file_, params);
      if (!weights_only) restore_slots(*content_, resumed_file_, params);
    } catch (const Error& error) {
      const std::string text = fmt::format("{} {}", static_cast<int>(error.code()), error.what());
      std::copy_n(text.begin(), std::min(text.size(), told.size() - 1), told.begin());
    }
  CommThread& comm = rig_->comm();
  comm.broadcast(host_view(told.data(), std::ssize(told)), 0, {}, "broadcast outcome", 0).wait();
  if (const std::string text(reinterpret_cast<const char*>(told.data())); !text.empty())
    throw AgreedError(static_cast<Exit>(std::stoi(text)), text.substr(text.find(' ') + 1));
  Event done = comm.broadcast(params.values(), 0, {}, "broadcast weights", 0);
  for (int slot = 0; slot < params.slots(); ++slot)
    done = comm.broadcast(params.slot(slot), 0, {}, "broadcast slots", 0);
  done.wait();
  if (!weights_only) restore_policy();
  content_.reset();
}

// Another policy, or another number of ranks, begins without the state of the last one.
void Trainer::restore_policy() {
  if (resumed_policy_ != settings_.policy) {
    if (leads())
      log_info(fmt::format("resume: the policy changes from {} to {}; its own state starts anew",
                           resumed_policy_, settings_.policy));
    return;
  }
  if (!policy_state_.empty() && resumed_ranks_ == job_.size()) rig_->load_policy(policy_state_);
  rig_->engine().show();
  const auto missing =
      restore_extras(rig_->engine(), rig_->params(), rig_->comm(), leads() ? &*content_ : nullptr,
                     resumed_ranks_ == job_.size());
  rig_->engine().hide();
  for (const std::string& line : missing) log_warning("resume: " + line);
}

/// The rounds of --replay-journal; rank 0 reads, the others are told.
void Trainer::load_replay() {
  std::string text;
  together(*world_, [&] {
    const std::string& file = settings_.replay_journal;
    if (file.empty()) return;
    if (make_policy(policy_from(settings_, job_.size()))->family() != Family::quorum)
      fail(Exit::settings,
           fmt::format("--replay-journal: expected a policy that writes journals (backup, quorum, "
                       "majority, solo, ssp), found --policy {}",
                       settings_.policy));
    if (!leads()) return;
    std::ifstream in(file);
    if (!std::filesystem::is_regular_file(file) || !in)
      fail(Exit::settings, fmt::format("--replay-journal: expected the journal.jsonl of a run, found no "
                                       "file {} that can be read",
                                       file));
    text.assign(std::istreambuf_iterator<char>(in), {});
  });
  text = broadcast_text(*world_, text, 0);
  together(*world_, [&] {
    std::istringstream lines(text);
    std::int64_t number = 0, last = -1;
    for (std::string line; std::getline(lines, line);) {
      const std::string where = fmt::format("--replay-journal: {}, line {}", settings_.replay_journal, ++number);
      JournalLine round = parse_journal_line(line, where);
      if (std::ssize(round.ranks) != job_.size())
        fail(Exit::settings, fmt::format("--replay-journal: {} is of {} ranks, this job has {}; start "
                                         "as many",
                                         settings_.replay_journal, round.ranks.size(), job_.size()));
      if (last >= 0 && round.round != last + 1)
        fail(Exit::data, fmt::format("{}: expected round {}, found {}; give the whole file that a run has "
                                     "written",
                                     where, last + 1, round.round));
      last = round.round;
      if (round.round > start_.step) replay_.push_back(std::move(round));
    }
  });
}

void Trainer::write_journal(const JournalLine& line) {
  const std::lock_guard lock(journal_mutex_);
  if (journal_) journal_->write_line(to_json(line));
  if (replay_.empty() || line.round > replay_.back().round) return;
  const JournalLine& past = replay_[static_cast<std::size_t>(line.round - replay_.front().round)];
  if (!past.checksum || !line.checksum || *past.checksum == *line.checksum) return;
  if (!std::exchange(replay_differs_, true))
    log_warning(fmt::format("--replay-journal: after round {} the weights differ from those of the run "
                            "that wrote {}; were its settings, data, program and micro-batches the same?",
                            line.round, settings_.replay_journal));
}

std::int64_t Trainer::total_steps() const {
  return goal_.steps > 0 ? goal_.steps : goal_.epochs * rig_->steps_per_epoch();
}

void Trainer::announce() const {
  if (settings_.all_ranks_log)
    log_info(fmt::format("rank {} on {}: {}, cores {}, {} threads", job_.rank(), job_.host(),
                         to_string(device_), ranks_[static_cast<std::size_t>(job_.rank())].cores,
                         settings_.threads));
  if (!leads()) return;
  std::string start = "fresh";
  if (!resumed_file_.empty())
    start = fmt::format("resumed from {} at step {} (epoch {})", resumed_file_, start_.step,
                        start_.cursor.epoch);
  else if (!settings_.init_from.empty())
    start = "fresh, with the weights of " + settings_.init_from;
  const ScheduleConfig schedule = schedule_from(settings_, data_.train->size(), 0);
  const BannerInfo info{
      .settings = &settings_,
      .ranks = &ranks_,
      .parameters = rig_->params().param_numel(),
      .train_data = data_.train->description(),
      .test_data = data_.test ? data_.test->description() : "",
      .train_samples = data_.train->size(),
      .test_samples = data_.test ? data_.test->size() : 0,
      .classes = model_.classes,
      .steps_per_epoch = rig_->steps_per_epoch(),
      .total_steps = total_steps(),
      .shares = rig_->shares(std::min(settings_.batch, data_.train->size())),
      .threads = threads_,
      .own_update_thread = !shared_update_,
      .lr_in_use = schedule.lr,
      .buckets = rig_->buckets(),
      .bytes_per_rank = static_cast<std::int64_t>(planned_bytes()),
      .start = start};
  for (const std::string& line : banner_lines(info)) log_info(line);
  folder_->remove_earlier();
  if (!resumed_file_.empty())
    for (const std::string& name :
         CheckpointFolder(folder_->checkpoints()).set_aside_after(start_.step))
      log_warning(fmt::format("a checkpoint of a later step, of the line this run leaves, is now {}",
                              name));
  write_file_atomically(folder_->config(), config_text(settings_));
}

}  // namespace sidestep
