// Delays made on purpose, to show and test what slow ranks do: pure functions of (seed, scenario,
// rank, step, micro-batch), the same for every policy and any order of calls. Only computes how
// long; the caller sleeps. Immutable after construction: any thread, nothing allocated in a step.
//
// A delay is counted in clean step times: 1 is the time that a rank computes in one step when
// nobody disturbs it (calibrated by the caller). Delays only add, they never speed a rank up.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sidestep {

/// A scenario is a list of terms with commas between. A term is a name, S0 to S10 or S8v (section
/// 5.3 of the literature map), or one of these forms:
///
///   rank=2:+0.5      rank 2 computes 0.5 longer in every step, spread over its micro-batches
///   rank=1:x1.5      rank 1 takes 1.5 times as long
///   random=2:+3.2    two different ranks, drawn each step, by 3.2, before their first micro-batch
///   noise=0.01       every rank and step, by 0.01 |N(0, 1)|
///   exp=0.3          every rank and step, exponential with this mean
///   lognormal=1      every micro-batch, by 0.5 X times its own time (DropCompute's noise): X
///                    log-normal (4, 1), cut to 1..1000, scaled to mean 1, times this number
///   burst=240/120/20:+0.75
///                    after gaps that are exponential with mean 240 steps, for a number of steps
///                    that is normal (120, 20), one rank, drawn for each burst, computes 0.75
///                    longer; bursts never overlap
///   link=1:x6        transfers of rank 1 take 6 times as long
///   links=3          transfers of every rank and step, log-normal: median 1, this p99, at least 1
///   loader=2:+1      rank 2 waits 1 longer for the input of every step
///   content=0:x3     one sample in ten is long and takes 3 times as long; of ten equal classes
///                    class 0 has 46 % of the long samples
///   stop=1@100:20s   rank 1 stops its own process for 20 s at step 100
///   kill=1@200       rank 1 kills itself at step 200
///
/// S3 is c = 0.7 + Exp(0.3) with the real compute time in the place of 0.7, so it adds an
/// exponential with mean 3/7: the same distribution in another unit of time.
class Injector {
 public:
  /// Exit::settings, naming the term, for a text that is none or names a rank that is not there.
  /// Empty: no injection. S10 needs the run's number of steps. Bursts are laid out for
  /// `total_steps` and at least for a million steps; there are none after that.
  Injector(std::string_view scenario, std::uint64_t seed, int ranks, std::int64_t total_steps = 0);

  bool active() const { return !terms_.empty(); }
  /// Extra compute time of a rank's micro-batch `unit` (from 0), in clean step times. `units`: how
  /// many micro-batches a usual step of a rank has, so that a clean one takes 1 / units.
  double compute(int rank, std::int64_t step, int unit, int units) const;
  /// Extra time of the loader before a step's first micro-batch, in clean step times.
  double loader(int rank, std::int64_t step) const;
  /// Factor on the transfer time of a collective started by this rank (1: none).
  double comm_factor(int rank, std::int64_t step) const;
  /// Factor on a micro-batch's time from its samples' lengths: the mean over the samples.
  /// `labels[i]` is the class of `ids[i]`; without labels no class is preferred.
  double content(std::span<const std::int64_t> ids, std::span<const std::int32_t> labels) const;
  bool by_content() const;
  /// Seconds for which this rank stops its own process at this step (SIGSTOP); 0: not.
  double stop_seconds(int rank, std::int64_t step) const;
  /// Whether this rank kills itself (SIGKILL) at this step.
  bool kills(int rank, std::int64_t step) const;

  /// The truth that a detector is judged by: ranks, ascending, whose compute and loader delays of
  /// this step come to kDelayed or more.
  static constexpr double kDelayed = 0.15;
  std::vector<int> delayed_ranks(std::int64_t step) const;

  /// The terms with scenario names written out, for the log.
  const std::string& text() const { return text_; }
  static std::vector<std::string> scenario_names();

  enum class Kind : std::uint8_t {
    add,
    times,
    random,
    noise,
    exponential,
    lognormal,
    burst,
    link,
    links,
    loader,
    content,
    stop,
    kill
  };

 private:
  struct Burst {
    std::int64_t begin, end;  ///< steps [begin, end)
    int rank;
  };
  struct Term {
    Kind kind;
    std::string purpose;  ///< names the term's own random numbers
    int rank = -1;
    std::int64_t number = 0;  ///< count of ranks, class or step
    double amount = 0;
    std::array<double, 3> shape = {};  ///< burst: mean gap, mean and deviation of the length
    std::vector<Burst> bursts = {};
  };

  Term parse(const std::string& text) const;
  void check_term(const Term& term, const std::string& text) const;
  void lay_out_bursts(Term& term, std::int64_t steps) const;
  std::uint64_t key(const Term& term, int rank, std::int64_t step) const;
  double delay(const Term& term, int rank, std::int64_t step, int unit, int units) const;
  bool chosen(const Term& term, int rank, std::int64_t step) const;

  std::string text_;
  std::uint64_t seed_;
  int ranks_;
  std::vector<Term> terms_;
};

}  // namespace sidestep
