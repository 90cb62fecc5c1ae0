// What one invocation of the program is to do: typed values of all options. Plain data; filled only
// from the table in options_table.cc, which also holds the defaults, so a Settings made by hand is
// empty on purpose: begin with default_settings().
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace sidestep {

enum class Command : std::uint8_t { train, eval, inspect, bench, options };

/// Where a value comes from. `drawn`: chosen at start (the seed); `checkpoint`: taken over at
/// resume.
enum class Origin : std::uint8_t { standard, file, command_line, checkpoint, drawn };

/// How often: every `epochs` epochs, or every `steps` steps; both 0 means never.
struct Interval {
  std::int64_t epochs = 0;
  std::int64_t steps = 0;
  bool operator==(const Interval&) const = default;
};

/// Steps [first, last); empty means none. Steps count from 0.
struct StepWindow {
  std::int64_t first = 0;
  std::int64_t last = 0;
  bool operator==(const StepWindow&) const = default;
};

/// A length of time, a type of its own so that it is parsed and printed as one.
struct Duration {
  double seconds = 0;
  bool operator==(const Duration&) const = default;
};

struct Settings {
  Command command = Command::train;

  std::string model, data;
  std::vector<std::int64_t> hidden;  ///< widths of the mlp's hidden layers
  std::int64_t classes = 0;          ///< 0: as many as the data has

  std::string out;
  std::string resume;     ///< empty, "latest" or a file
  std::string init_from;  ///< empty or a checkpoint whose weights to start from
  bool replace = false;

  std::int64_t epochs = 0, steps = 0;  ///< steps > 0 wins over epochs
  Duration max_time;                   ///< 0: no limit
  std::int64_t batch = 0;              ///< global

  double lr = 0;
  std::string lr_scale;  ///< "none" or "linear" (lr * batch / lr_base_batch)
  std::int64_t lr_base_batch = 0;
  std::string schedule;  ///< "constant", "step", "cosine"
  double warmup_epochs = 0, step_epochs = 0, gamma = 0, min_lr = 0;
  std::string optimizer;
  double momentum = 0, weight_decay = 0, beta1 = 0, beta2 = 0, epsilon = 0;
  bool nesterov = false;
  double clip_norm = 0;    ///< 0: no clipping
  std::int64_t seed = -1;  ///< -1: not yet drawn (agree_on_seed)
  bool shuffle = false;

  std::int64_t micro_batch = 0;  ///< samples of one pass; 0: the policy's choice
  std::string policy;
  std::int64_t sync_every = 0;   ///< model presets; this and the next: 0 or "auto" is the preset's
  double outer_lr = 0, outer_momentum = -1, easgd_alpha = 0;
  std::string outer_nesterov, local_state, local_order;
  double window = 0, drop_tau = 0, drop_cap = 0;
  std::int64_t quorum = 0, backup = 0, max_age = 0;
  double silence = 0, age_weight = 0;
  std::string late, participants;
  double selsync_delta = 0, sync_rate = 0;
  std::int64_t vote_lag = 0, sync_max = 0;
  std::string replay_journal;    ///< empty or a file

  std::string inject;            ///< empty: no delays on purpose
  double emulate_step = 0;       ///< milliseconds; 0: real compute times
  double emulate_link = 0;       ///< Mbit/s; 0: the real network
  Duration late_limit, stall_limit, lost_limit;

  std::string overlap;  ///< "off", "backward", "full"
  double bucket_mb = 0;

  std::int64_t threads = 0;   ///< per rank; 0: threads_for()
  std::string update_thread;  ///< "own", "shared", "auto"
  std::string device;         ///< "auto", "cpu", "cuda"
  std::int64_t prefetch = 0;  ///< batches kept ready

  Interval eval_every;
  std::int64_t eval_batch = 0;        ///< global
  std::string keep_best;              ///< "none", "accuracy", "loss"
  std::int64_t checkpoint_every = 0;  ///< steps; 0: at each epoch's end
  std::int64_t keep = 0;              ///< newest checkpoints kept; 0: all

  std::int64_t metrics_every = 0, ranks_every = 0;  ///< steps
  Duration log_every;
  StepWindow trace;
  std::string log_level;  ///< "debug", "info", "warning", "error"
  bool all_ranks_log = false, allow_single = false;

  std::string checkpoint;  ///< eval
  std::string file;        ///< inspect
  bool verify = false;     ///< inspect

  std::int64_t bench_steps = 0, bench_repeats = 0;
  std::string json;  ///< bench: empty or a file for the results

  bool markdown = false;  ///< options

  std::string config;                     ///< empty or the file that was read
  std::map<std::string, Origin> origins;  ///< by option name; absent means Origin::standard
};

}  // namespace sidestep
