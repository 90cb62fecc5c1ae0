// The one place where options are declared.
#include <limits>

#include "app/options.h"
#include "comm/sync_policy.h"
#include "core/model/model.h"

namespace sidestep {
namespace {

constexpr unsigned kRuns = kTrain | kEval | kBench;
constexpr unsigned kBoth = kTrain | kBench;
constexpr ResumeRule kMust = ResumeRule::must_match;
constexpr ResumeRule kMay = ResumeRule::may_change;
constexpr ResumeRule kFree = ResumeRule::free;
using S = Settings;

/// A row of the table in the making.
struct Row {
  OptionSpec spec;
  Row from(double low, double high = std::numeric_limits<double>::infinity()) && {
    spec.low = low;
    spec.high = high;
    return std::move(*this);
  }
  Row above(double low, double high) && {
    spec.above_low = true;
    return std::move(*this).from(low, high);
  }
  Row one_of(std::vector<std::string> choices) && {
    spec.choices = std::move(choices);
    return std::move(*this);
  }
  Row required() && {
    spec.required = true;
    return std::move(*this);
  }
  Row per_rank() && {
    spec.per_rank = true;
    return std::move(*this);
  }
  Row positional() && {
    spec.positional = true;
    return std::move(*this);
  }
};
using Rows = std::vector<Row>;

Row row(const char* name, OptionField field, const char* standard, unsigned commands,
        ResumeRule resume, const char* help) {
  return {{.name = name,
           .group = {},
           .field = field,
           .standard = standard,
           .commands = commands,
           .resume = resume,
           .help = help}};
}

Rows task_options() {
  return {
      row("model", &S::model, "lenet", kBoth, kMust, "model to train").one_of(model_names()),
      row("hidden", &S::hidden, "1024,1024", kBoth, kMust,
          "widths of the mlp's hidden layers, with commas between")
          .from(1, 1 << 20),
      row("data", &S::data, "fashion-mnist", kRuns, kMay,
          "fashion-mnist[:DIR], idx:DIR, hdf5:FILE[,FILE...][;test=FILE,...] or "
          "synthetic[:COUNT[xHxWxC[xCLASSES]]]; eval: the checkpoint's unless given")
          .required(),
      row("classes", &S::classes, "0", kBoth, kMust,
          "classes of the model; 0: as many as the data has")
          .from(0, 1 << 20),
      row("seed", &S::seed, "-1", kBoth, kMust,
          "of weights, order and synthetic data; -1: drawn at start and printed")
          .from(-1, 9e15),
      row("checkpoint", &S::checkpoint, "", kEval, kFree, "checkpoint to evaluate").required(),
      row("file", &S::file, "", kInspect, kFree, "checkpoint to describe").required().positional(),
      row("verify", &S::verify, "off", kInspect, kFree,
          "read everything and check each dataset's digest"),
      row("markdown", &S::markdown, "off", kOptions, kFree,
          "print all options as a Markdown table"),
  };
}

Rows run_options() {
  return {
      row("out", &S::out, "run", kTrain, kFree, "folder for everything the run leaves").required(),
      row("resume", &S::resume, "", kTrain, kFree,
          "continue from FILE, or from the newest usable checkpoint in --out: latest; auto: latest if there "
               "is one, else a fresh start"),
      row("replace", &S::replace, "off", kTrain, kFree, "remove an earlier run in --out first"),
      row("init-from", &S::init_from, "", kTrain, kFree,
          "take the weights, and nothing else, from this checkpoint"),
      row("epochs", &S::epochs, "5", kTrain, kMay, "passes over the data").from(0, 1e9),
      row("steps", &S::steps, "0", kTrain, kMay,
          "stop after this many steps, whatever --epochs says; 0: by epochs")
          .from(0, 1e15),
      row("max-time", &S::max_time, "0s", kTrain, kFree,
          "save and exit with 75 after this time (90s, 30m, 2h, HH:MM:SS); 0s: no limit")
          .from(0),
      row("batch", &S::batch, "128", kBoth, kMust,
          "samples of a step over all ranks (the global batch)")
          .from(1, 1 << 24),
      row("shuffle", &S::shuffle, "on", kTrain, kMust,
          "a new order of the samples in each epoch (on or off)"),
  };
}

Rows rate_options() {
  return {
      row("lr", &S::lr, "0.05", kBoth, kMay,
          "learning rate, for the global batch unless --lr-scale says otherwise")
          .above(0, 1e9),
      row("lr-scale", &S::lr_scale, "none", kTrain, kMay, "linear: use lr * batch / lr-base-batch")
          .one_of({"none", "linear"}),
      row("lr-base-batch", &S::lr_base_batch, "128", kTrain, kMay,
          "global batch that --lr is meant for")
          .from(1, 1 << 24),
      row("schedule", &S::schedule, "constant", kTrain, kMay,
          "how the rate changes, by samples seen")
          .one_of({"constant", "step", "cosine"}),
      row("warmup-epochs", &S::warmup_epochs, "0", kTrain, kMay,
          "rise linearly to the rate over this time")
          .from(0, 1e9),
      row("step-epochs", &S::step_epochs, "1", kTrain, kMay,
          "schedule step: multiply by gamma after each such time")
          .above(0, 1e9),
      row("gamma", &S::gamma, "0.1", kTrain, kMay, "schedule step: factor").above(0, 1),
      row("min-lr", &S::min_lr, "0", kTrain, kMay, "schedule cosine: rate at the end").from(0, 1e9),
  };
}

Rows optimizer_options() {
  return {
      row("optimizer", &S::optimizer, "sgd", kBoth, kMust, "update rule").one_of({"sgd", "adamw"}),
      row("momentum", &S::momentum, "0.9", kBoth, kMay, "sgd").from(0, 1),
      row("nesterov", &S::nesterov, "off", kTrain, kMay, "sgd: Nesterov's form of momentum"),
      row("weight-decay", &S::weight_decay, "0", kBoth, kMay,
          "sgd: added to the gradient; adamw: decoupled")
          .from(0, 1e6),
      row("beta1", &S::beta1, "0.9", kTrain, kMay, "adamw").from(0, 0.999999999),
      row("beta2", &S::beta2, "0.999", kTrain, kMay, "adamw").from(0, 0.999999999),
      row("epsilon", &S::epsilon, "1e-08", kTrain, kMay, "adamw").above(0, 1),
      row("clip-norm", &S::clip_norm, "0", kBoth, kMay,
          "scale the reduced gradient down to this global norm; waits for the whole exchange; "
          "0: off")
          .from(0, 1e30),
  };
}

Rows parallel_options() {
  return {
      row("policy", &S::policy, "bsp", kBoth, kMay, "when and with whom ranks exchange")
          .one_of(policy_names()),
      row("micro-batch", &S::micro_batch, "0", kBoth, kMay,
          "samples that one pass computes; gradients of several are added up; 0: a rank's share in "
          "one pass (balance and drop: an eighth of it)")
          .from(0, 1 << 24),
      row("overlap", &S::overlap, "full", kBoth, kFree,
          "exchange after backward (off), during it (backward), and during the next forward "
          "too (full)")
          .one_of({"off", "backward", "full"}),
      row("bucket-mb", &S::bucket_mb, "1", kBoth, kMay,
          "gradients exchanged at a time, in MB (2^20 bytes)")
          .above(0, 4096),
      row("threads", &S::threads, "0", kRuns, kFree,
          "compute threads of a rank; 0: the cores it is bound to, shared among the ranks there")
          .from(0, 4096)
          .per_rank(),
      row("update-thread", &S::update_thread, "auto", kBoth, kFree,
          "thread of the weight update; auto: own if the rank has several cores")
          .one_of({"auto", "own", "shared"})
          .per_rank(),
      row("device", &S::device, "auto", kRuns, kFree,
          "where to compute; auto: the CPU, as not every op has a CUDA form yet")
          .one_of({"auto", "cpu", "cuda"}),
      row("prefetch", &S::prefetch, "4", kRuns, kFree, "batches kept ready by the loader")
          .from(1, 1024)
          .per_rank(),
      row("allow-single", &S::allow_single, "off", kRuns, kFree,
          "run alone although the scheduler started several copies")
          .per_rank(),
  };
}

Rows model_policy_options() {
  return {
      row("sync-every", &S::sync_every, "0", kBoth, kMay,
          "local, bmuf, slowmo, diloco, easgd: local steps between exchanges of models; 0: the "
          "policy's own")
          .from(0, 1e9),
      row("outer-lr", &S::outer_lr, "0", kBoth, kMay,
          "bmuf, slowmo, diloco: rate of the outer optimizer; 0: the policy's own")
          .from(0, 100),
      row("outer-momentum", &S::outer_momentum, "-1", kBoth, kMay,
          "bmuf, slowmo, diloco: momentum of the outer optimizer; -1: the policy's own")
          .from(-1, 1),
      row("outer-nesterov", &S::outer_nesterov, "auto", kBoth, kMay,
          "Nesterov's form of the outer momentum")
          .one_of({"auto", "on", "off"}),
      row("easgd-alpha", &S::easgd_alpha, "0", kBoth, kMay,
          "easgd: pull towards the centre; 0: 0.9 over the number of ranks")
          .from(0, 1),
      row("local-state", &S::local_state, "auto", kBoth, kMay,
          "what becomes of a rank's own optimizer state at an exchange of models")
          .one_of({"auto", "reset", "keep", "average"}),
      row("local-order", &S::local_order, "shared", kBoth, kMay,
          "rotated: each rank walks through chunks of the data in turn (SelDP)")
          .one_of({"shared", "rotated"}),
      row("window", &S::window, "8", kBoth, kMay,
          "window: time between exchanges, in clean local step times")
          .above(0, 1e6),
      row("selsync-delta", &S::selsync_delta, "0", kBoth, kMay,
          "selsync: relative change of the gradient's norm that calls for an exchange; 0: chosen "
          "from --sync-rate")
          .from(0, 1e6),
      row("sync-rate", &S::sync_rate, "0.1", kBoth, kMay,
          "selsync: share of steps that should exchange")
          .above(0, 1),
      row("vote-lag", &S::vote_lag, "0", kBoth, kMay,
          "selsync: steps between a vote and the step that obeys it")
          .from(0, 64),
      row("sync-max", &S::sync_max, "100", kBoth, kMay, "selsync: most local steps in a row")
          .from(1, 1e6),
  };
}

Rows relaxed_policy_options() {
  return {
      row("drop-tau", &S::drop_tau, "0", kBoth, kMay,
          "drop: seconds after which a rank begins no further micro-batch; 0: calibrated")
          .from(0, 1e6),
      row("drop-cap", &S::drop_cap, "0.1", kBoth, kMay, "drop: largest share of samples left out")
          .above(0, 0.5),
      row("quorum", &S::quorum, "0", kBoth, kMay,
          "quorum: ranks that must have arrived before a round may close; 0: half of them")
          .from(0, 1 << 20),
      row("silence", &S::silence, "0.1", kBoth, kMay,
          "quorum: then it closes after so long without another arrival, in clean step times")
          .from(0, 100),
      row("backup", &S::backup, "1", kBoth, kMay, "backup: slowest ranks a round does not wait for")
          .from(1, 1 << 20),
      row("late", &S::late, "auto", kBoth, kMay,
          "quorum, majority, solo, ssp: late gradients join a later round, or are thrown away")
          .one_of({"auto", "carry", "discard"}),
      row("max-age", &S::max_age, "0", kBoth, kMay,
          "rounds that a late gradient may be old; 0: the policy's own")
          .from(0, 1e6),
      row("age-weight", &S::age_weight, "1", kBoth, kMay,
          "factor on a late gradient for each round of its age")
          .above(0, 1),
      row("participants", &S::participants, "complete", kBoth, kMay,
          "who takes part in a round: ranks whose gradient is complete, or ranks that have begun "
          "their last backward pass (early), so that their buckets stream")
          .one_of({"complete", "early"}),
      row("replay-journal", &S::replay_journal, "", kTrain, kFree,
          "repeat the rounds that journal.jsonl of another run recorded, with the same participants"),
  };
}

Rows fault_options() {
  return {
      row("inject", &S::inject, "", kBoth, kFree,
          "delay ranks on purpose: S0 to S10, or terms such as rank=1:x1.5,random=2:+3.2"),
      row("emulate-step", &S::emulate_step, "0", kBoth, kFree,
          "milliseconds that a step's compute is made to take by sleeping; 0: real times")
          .from(0, 1e7),
      row("emulate-link", &S::emulate_link, "0", kBoth, kFree,
          "Mbit/s of the network that transfers are slowed down to; 0: the real one")
          .from(0, 1e7),
      row("late-limit", &S::late_limit, "30s", kTrain, kFree,
          "a rank that is not heard for so long is named in a warning; 0s: never")
          .from(0),
      row("stall-limit", &S::stall_limit, "60s", kTrain, kFree,
          "warn when no rank's step has advanced for so long; 0s: never")
          .from(0),
      row("lost-limit", &S::lost_limit, "120s", kTrain, kFree,
          "end the job when a rank is not heard for so long; 0s: never")
          .from(0),
  };
}

Rows saving_options() {
  return {
      row("eval-every", &S::eval_every, "1", kTrain, kMay,
          "evaluate every N epochs, or every Nsteps (200steps); 0: never"),
      row("eval-batch", &S::eval_batch, "1000", kTrain | kEval, kMay,
          "samples of an evaluation step over all ranks")
          .from(1, 1 << 24),
      row("keep-best", &S::keep_best, "none", kTrain, kMay,
          "keep best.h5, the checkpoint with the best test figure")
          .one_of({"none", "accuracy", "loss"}),
      row("checkpoint-every", &S::checkpoint_every, "0", kTrain, kMay,
          "save every N steps; 0: at each epoch's end")
          .from(0, 1e15),
      row("keep", &S::keep, "3", kTrain, kMay, "newest checkpoints kept; 0: all").from(0, 1e9),
  };
}

Rows report_options() {
  return {
      row("metrics-every", &S::metrics_every, "1", kTrain, kMay,
          "steps between lines of metrics.jsonl")
          .from(1, 1e9),
      row("ranks-every", &S::ranks_every, "100", kTrain, kMay,
          "steps between lines of ranks.jsonl")
          .from(1, 1e9),
      row("log-every", &S::log_every, "10s", kTrain, kMay,
          "time between progress lines in a file; 0s: a line a step")
          .from(0),
      row("trace", &S::trace, "", kTrain, kFree, "write trace.json of steps A to B-1: A:B"),
      row("log-level", &S::log_level, "info", kRuns, kFree, "least important lines shown")
          .one_of({"debug", "info", "warning", "error"}),
      row("all-ranks-log", &S::all_ranks_log, "off", kRuns, kFree,
          "show the lines of all ranks, not only of rank 0"),
      row("bench-steps", &S::bench_steps, "50", kBench, kFree, "steps of a measurement")
          .from(1, 1e9),
      row("bench-repeats", &S::bench_repeats, "5", kBench, kFree,
          "measurements of each kind, interleaved; medians are reported")
          .from(1, 1e6),
      row("json", &S::json, "", kBench, kFree, "also write the results to this file"),
      row("config", &S::config, "", kRuns, kFree,
          "read options from this ini file; the command line wins"),
  };
}

std::vector<OptionSpec> make_table() {
  struct Group {
    const char* name;
    Rows rows;
  };
  std::vector<OptionSpec> table;
  Group groups[] = {
      {"Task", task_options()},          {"Run", run_options()},
      {"Learning rate", rate_options()}, {"Optimizer", optimizer_options()},
      {"Parallel", parallel_options()},  {"Policies that exchange models", model_policy_options()},
      {"Policies that wait less", relaxed_policy_options()},
      {"Evaluation and saving", saving_options()},
      {"Reports", report_options()},     {"Delays and limits", fault_options()},
  };
  for (Group& group : groups) {
    for (Row& r : group.rows) {
      r.spec.group = group.name;
      table.push_back(std::move(r.spec));
    }
  }
  return table;
}

}  // namespace

const std::vector<OptionSpec>& option_table() {
  static const std::vector<OptionSpec> table = make_table();
  return table;
}

}  // namespace sidestep
