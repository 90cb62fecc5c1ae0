// What a synchronization policy decides, as plain data. A policy never touches MPI, streams or
// tensors; an engine carries its decisions out. Every rank has one and feeds it the same rounds, so
// all copies decide alike. Main thread (quorum family: under the engine's lock).
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/round_header.h"

namespace sidestep {

/// Which engine carries a policy out. gradient: every rank takes part in every round's gradient sum;
/// model: ranks take local steps and exchange models; quorum: a round may close without some ranks.
enum class Family : std::uint8_t { gradient, model, quorum };

/// What happens to a rank's own optimizer state when models are exchanged.
enum class LocalState : std::uint8_t { reset, keep, average };

/// The knobs of all presets, as the user has set them; a preset reads its own. Zero (or "auto")
/// stands for the preset's standard value.
struct PolicyConfig {
  std::string name = "bsp";
  int ranks = 1;
  std::int64_t batch = 1;         ///< global
  std::int64_t micro_batch = 0;   ///< samples of one pass; 0: a rank's whole share
  std::uint64_t seed = 0;

  std::int64_t sync_every = 0;    ///< model family: local steps between exchanges
  double outer_lr = 0;            ///< zeta
  double outer_momentum = -1;     ///< mu; negative: the preset's
  std::string nesterov = "auto";  ///< outer Nesterov: "auto", "on", "off"
  double easgd_alpha = 0;         ///< 0: 0.9 / ranks
  std::string local_state = "auto";  ///< "auto", "reset", "keep", "average"

  double window = 8;              ///< window: length in clean local step times
  double drop_tau = 0;            ///< drop: seconds; 0: calibrated by replay
  double drop_cap = 0.1;          ///< drop: largest share of samples to drop

  std::int64_t quorum = 0;        ///< fresh arrivals that close a round; 0: half of the ranks
  std::int64_t backup = 1;        ///< backup: slowest ranks that are not waited for
  double silence = 0.1;           ///< quiet time after an arrival before a round closes, in step times
  std::string late = "auto";      ///< "auto", "carry", "discard"
  std::int64_t max_age = 0;       ///< rounds; 0: the preset's
  double age_weight = 1;          ///< lambda: late work of age a counts lambda^a

  double selsync_delta = 0;       ///< 0: chosen from sync_rate
  double sync_rate = 0.1;         ///< share of steps that should synchronize
  std::int64_t vote_lag = 0;      ///< steps between a vote and the step that obeys it
  std::int64_t sync_max = 100;    ///< H_max
};

/// What is known when a round (gradient, quorum, window) or a step (other model presets) is planned.
struct StepInfo {
  std::int64_t step = 0;          ///< its number, from 1
  std::int64_t global_batch = 0;  ///< samples of a usual step here: less at an epoch's end
  std::int64_t available = 0;     ///< samples left to hand out in this epoch, at least global_batch
  int rank = 0;
  int ranks = 1;
};

/// How much each rank computes.
struct WorkPlan {
  /// Samples by rank, in rank order; their sum is taken from the epoch's order. Usually it is the
  /// global batch; window takes more, up to what is available.
  std::vector<std::int64_t> shares;
  /// No further micro-batch (window: local step) begins once this rank has computed for so long.
  double stop_after_s = std::numeric_limits<double>::infinity();
};

/// Whose weight divides the summed gradient.
enum class Divisor : std::uint8_t { participants, nominal };

/// When a round of the quorum family closes and what becomes of late work.
struct RoundRule {
  int quorum = 0;          ///< fresh arrivals needed; 0 means all ranks
  double silence_s = 0;    ///< then close after so long without another arrival
  int initiator = -1;      ///< majority: close when this rank has arrived; -1: nobody is named
  bool carry = false;      ///< late work joins a later round; else it is written off
  int max_age = 0;         ///< rounds that carried work may be late; 0: not limited
  float age_weight = 1;    ///< lambda
  Divisor divisor = Divisor::participants;
};

/// The outer optimizer over G = mean of (theta_prev - theta_i), in the form of section 2.1 of the
/// literature map: heavy ball  m <- mu m + G; theta <- theta_prev - zeta m;  nesterov
/// theta <- theta_prev - zeta (G + mu m). zeta = 1, mu = 0 is plain averaging.
struct OuterRule {
  double lr = 1;         ///< zeta
  double momentum = 0;   ///< mu
  bool nesterov = false;
  bool by_lr = false;    ///< SlowMo: the buffer holds G / (local rate), so it follows rate changes
};

/// How the model family applies an exchange.
struct ModelRule {
  std::int64_t steps = 1;        ///< local steps between exchanges (selsync: at most)
  bool vote = false;             ///< selsync: ranks vote after each step whether to exchange now
  bool update_each_unit = false;  ///< window: every micro-batch is a local step
  bool elastic = false;          ///< easgd instead of the outer optimizer
  double elastic_alpha = 0;
  OuterRule outer = {};
  bool weighted = true;          ///< mean over ranks weighted by their samples
  LocalState local_state = LocalState::reset;
};

class SyncPolicy {
 public:
  virtual ~SyncPolicy() = default;
  virtual std::string_view name() const = 0;
  virtual Family family() const = 0;
  /// Whether a round may leave samples of its block out (drop, window and the quorum family), which
  /// are then served again before the epoch ends.
  virtual bool leaves_out() const { return family() == Family::quorum; }
  /// Whether shares may be other than even (balance, and what leaves samples out).
  virtual bool varies() const { return leaves_out(); }
  /// Writes into `plan` (reused, so that a step allocates nothing).
  virtual void plan(const StepInfo& info, WorkPlan& plan) = 0;
  /// Quorum family: the rule of a round. Thread-safe: reads only what observe() left.
  virtual RoundRule rule(std::int64_t /*round*/) { return {}; }
  virtual ModelRule model_rule() const { return {}; }
  /// After each completed round, with the same entries on every rank: measurements to plan by.
  virtual void observe(std::int64_t /*step*/, std::span<const RankEntry> /*entries*/) {}
  /// One line when something worth knowing was decided since the last call (shares, tau, delta);
  /// empty if not. Logged by rank 0.
  virtual std::string news() { return ""; }
  /// State that a checkpoint keeps, as one line of JSON; empty if there is none.
  virtual std::string save() const { return ""; }
  virtual void load(const std::string& /*state*/) {}
};

/// Fails with Exit::settings for an unknown name or a value that cannot hold for these ranks.
std::unique_ptr<SyncPolicy> make_policy(const PolicyConfig& config);
std::vector<std::string> policy_names();

/// Shares of `batch` over `ranks` that differ by at most one sample; the first ranks get more.
void even_shares(std::int64_t batch, int ranks, std::vector<std::int64_t>& shares);

}  // namespace sidestep
