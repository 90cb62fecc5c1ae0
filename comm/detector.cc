#include "comm/detector.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "core/base/error.h"

namespace sidestep {

const char* to_string(RankState state) {
  constexpr const char* kNames[] = {"calm", "jitter", "loader", "slow", "link"};
  return kNames[static_cast<int>(state)];
}

namespace {

constexpr int kStates = static_cast<int>(RankState::link) + 1;

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

/// The value below which `share` of the values lie (the lower one of two); reorders them.
double quantile(std::vector<double>& values, double share) {
  const auto at =
      values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

/// Hysteresis of one rank, or of the exchange.
struct Track {
  RankState state = RankState::calm;
  std::array<int, kStates> at_least = {};  ///< decisions in a row that were so heavy or heavier
  std::array<std::int64_t, kStates> since = {};
  int lighter = 0;
  std::int64_t lighter_since = 0;

  /// Takes the decision `found`, which holds since step `begun`. True if the state has changed;
  /// then `from` is when the new one began.
  bool take(RankState found, std::int64_t begun, std::int64_t step,
            const Detector::Options& options, std::int64_t& from) {
    for (int k = 1; k < kStates; ++k) {
      const auto i = static_cast<std::size_t>(k);
      at_least[i] = static_cast<int>(found) >= k ? at_least[i] + 1 : 0;
      if (at_least[i] == 1) since[i] = begun;
    }
    lighter = found < state ? lighter + 1 : 0;
    if (lighter == 1) lighter_since = step;
    const auto i = static_cast<std::size_t>(found);
    const bool up = found > state && at_least[i] >= options.up, down = lighter >= options.down;
    if (!up && !down) return false;
    from = up ? since[i] : lighter_since;
    state = found;
    lighter = 0;
    return true;
  }
};

/// A rank's numbers of one round.
struct Sample {
  bool valid = false;
  bool over = false;  ///< slower than its round's median by the ratio of `slow`
  double unit = 0;    ///< compute time of a micro-batch
  double units = 0;
  double input = 0;
  std::optional<double> late;
};

/// The same over the window.
struct Summary {
  bool valid = false;
  double unit = 0, unit90 = 0, step = 0, input = 0, over = 0;
};

}  // namespace

struct Detector::Impl {
  Options options;
  std::int64_t rounds = 0;
  std::vector<std::int64_t> steps;               // [window], a ring
  std::vector<std::optional<double>> transfers;  // [window]
  std::vector<std::vector<Sample>> samples;      // [rank][window]
  std::vector<Summary> summaries;                // [rank]
  std::vector<Track> tracks;                     // [rank]
  std::vector<double> lateness;                  // [rank]
  Track exchange;
  std::vector<double> baseline;  // a ring of medians of windows that were free of a slow link
  std::size_t baselines = 0;     // ever written
  bool fleet = false;
  std::vector<double> scratch;
  std::vector<DetectorEvent> events;

  explicit Impl(const Options& o) : options(o) {
    check(o.ranks > 0 && o.window > 0 && o.every > 0, "a detector's ranks, window and pace");
    const auto ranks = static_cast<std::size_t>(o.ranks),
               window = static_cast<std::size_t>(o.window);
    steps.resize(window);
    transfers.resize(window);
    samples.assign(ranks, std::vector<Sample>(window));
    summaries.resize(ranks);
    tracks.resize(ranks);
    lateness.resize(ranks);
    constexpr int kBaselineRounds = 500;
    baseline.reserve(static_cast<std::size_t>(std::max(1, kBaselineRounds / o.every)));
    scratch.reserve(std::max({ranks, window, baseline.capacity()}));
  }

  /// The median over ranks of what `value` gives, without those for which it gives nothing.
  template <class F>
  double over_ranks(const F& value) {
    scratch.clear();
    for (std::size_t r = 0; r < samples.size(); ++r)
      if (const std::optional<double> x = value(r)) scratch.push_back(*x);
    return scratch.empty() ? 0 : quantile(scratch, 0.5);
  }

  /// The first step in the window's ring for which `holds`, or the last one.
  template <class F>
  std::int64_t first_step(const F& holds) const {
    const auto window = static_cast<std::int64_t>(steps.size());
    for (std::int64_t k = std::max<std::int64_t>(0, rounds - window); k < rounds; ++k)
      if (const auto slot = static_cast<std::size_t>(k % window); holds(slot)) return steps[slot];
    return steps[static_cast<std::size_t>((rounds - 1) % window)];
  }

  void record(std::int64_t step, std::span<const RankEntry> entries);
  void summarize(std::size_t rank);
  void decide(std::int64_t step);
  RankState classify(std::size_t rank, double group_unit, double group_step, double others_input);
  void decide_exchange(std::int64_t step, double group_step);
  void decide_fleet(std::int64_t step, double group_unit);
};

void Detector::Impl::record(std::int64_t step, std::span<const RankEntry> entries) {
  check(entries.size() == samples.size(), "an entry for each rank");
  const auto slot = static_cast<std::size_t>(rounds % options.window);
  double shortest = 0, longest = 0;
  for (std::size_t r = 0; r < entries.size(); ++r) {
    const RankEntry& entry = entries[r];
    Sample& sample = samples[r][slot];
    sample = {};
    if (entry.compute_units <= 0) continue;
    sample.valid = true;
    sample.units = static_cast<double>(entry.compute_units);
    sample.unit = seconds(entry.compute_ns) / sample.units;
    sample.input = seconds(entry.input_ns);
    if (entry.exchange_ns <= 0) continue;
    const double duration = seconds(entry.exchange_ns);
    sample.late = duration;
    shortest = longest == 0 ? duration : std::min(shortest, duration);
    longest = std::max(longest, duration);
  }
  const double middle = over_ranks([&](std::size_t r) -> std::optional<double> {
    return samples[r][slot].valid ? std::optional(samples[r][slot].unit) : std::nullopt;
  });
  for (std::vector<Sample>& ring : samples) {
    Sample& sample = ring[slot];
    sample.over = sample.valid && sample.unit > options.slow * middle;
    if (sample.late) sample.late = longest - *sample.late;  // all end together: short is late
  }
  steps[slot] = step;
  transfers[slot] = longest > 0 ? std::optional(shortest) : std::nullopt;
  ++rounds;
}

void Detector::Impl::summarize(std::size_t rank) {
  const std::vector<Sample>& ring = samples[rank];
  const auto median = [&](const auto& value) {
    scratch.clear();
    for (const Sample& s : ring)
      if (s.valid) value(s);
    return scratch.empty() ? 0 : quantile(scratch, 0.5);
  };
  Summary& sum = summaries[rank];
  lateness[rank] = median([&](const Sample& s) {
    if (s.late) scratch.push_back(*s.late);
  });
  sum.input = median([&](const Sample& s) { scratch.push_back(s.input); });
  sum.step = median([&](const Sample& s) { scratch.push_back(s.unit * s.units); });
  sum.unit = median([&](const Sample& s) { scratch.push_back(s.unit); });
  // A rank that is often late measures in few rounds; an eighth of them is enough to judge it.
  sum.valid = !scratch.empty() && scratch.size() * 8 >= ring.size();
  if (!sum.valid) return;
  sum.unit90 = quantile(scratch, 0.9);
  sum.over = static_cast<double>(std::ranges::count_if(ring, &Sample::over)) /
             static_cast<double>(scratch.size());
}

RankState Detector::Impl::classify(std::size_t rank, double group_unit, double group_step,
                                   double others_input) {
  const Summary& own = summaries[rank];
  const double units = own.step / own.unit;
  const auto exceeds = [&](double a, double b) {
    return a > options.slow * b && (a - b) * units >= options.least_s;
  };
  const bool slower = exceeds(own.unit, group_unit);
  if (slower && own.over >= options.persistent) return RankState::slow;
  constexpr double kInputShare = 0.15, kInputRatio = 2;
  if (own.input > kInputShare * group_step && own.input > kInputRatio * others_input &&
      own.input >= options.least_s)
    return RankState::loader;
  const bool varies = exceeds(own.unit90, own.unit);
  if (own.over < 0.5 ? varies : slower) return RankState::jitter;
  return RankState::calm;
}

void Detector::Impl::decide(std::int64_t step) {
  for (std::size_t r = 0; r < samples.size(); ++r) summarize(r);
  const auto of = [&](double Summary::*member) {
    return over_ranks([&](std::size_t r) {
      return summaries[r].valid ? std::optional(summaries[r].*member) : std::nullopt;
    });
  };
  const double group_unit = of(&Summary::unit), group_step = of(&Summary::step);
  const std::size_t first_event = events.size();
  for (std::size_t r = 0; r < samples.size(); ++r) {
    const Summary& own = summaries[r];
    if (!own.valid || own.unit <= 0) continue;
    const double others = over_ranks([&](std::size_t other) {
      return other != r && summaries[other].valid ? std::optional(summaries[other].input)
                                                  : std::nullopt;
    });
    const RankState found = classify(r, group_unit, group_step, others);
    const std::int64_t begun = first_step([&](std::size_t slot) {
      const Sample& s = samples[r][slot];
      return found == RankState::loader ? s.input > 0.5 * own.input : s.over;
    });
    DetectorEvent event{.step = step, .rank = static_cast<int>(r), .before = tracks[r].state};
    if (!tracks[r].take(found, begun, step, options, event.since_step)) continue;
    event.state = tracks[r].state;
    const RankState about = event.state == RankState::calm ? event.before : event.state;
    const bool input = about == RankState::loader;
    event.own_s = input ? own.input : event.state == RankState::jitter ? own.unit90 : own.unit;
    event.group_s = input ? others : group_unit;
    events.push_back(event);
  }
  decide_fleet(step, group_unit);
  for (std::size_t i = first_event; i < events.size(); ++i)
    if (events[i].state == RankState::slow) events[i].fleet = fleet;
  decide_exchange(step, group_step);
}

void Detector::Impl::decide_fleet(std::int64_t step, double group_unit) {
  DetectorEvent event{.step = step, .fleet = true, .group_s = group_unit, .since_step = step};
  int slow = 0;
  for (std::size_t r = 0; r < tracks.size(); ++r) {
    if (tracks[r].state != RankState::slow) continue;
    ++slow;
    event.own_s = std::max(event.own_s, summaries[r].unit);
  }
  if ((slow >= 2) == fleet) return;
  fleet = slow >= 2;
  (fleet ? event.state : event.before) = RankState::slow;
  events.push_back(event);
}

void Detector::Impl::decide_exchange(std::int64_t step, double group_step) {
  scratch.clear();
  for (const std::optional<double>& t : transfers)
    if (t) scratch.push_back(*t);
  if (scratch.empty()) return;
  const double now = quantile(scratch, 0.5);
  double usual = now;
  if (!baseline.empty()) {
    scratch.assign(baseline.begin(), baseline.end());
    usual = quantile(scratch, 0.5);
  }
  constexpr double kLonger = 1.2, kComputeShare = 0.05;
  const double bound =
      std::max(kLonger * usual, usual + std::max(kComputeShare * group_step, 2 * options.least_s));
  const bool up = now > bound;
  if (!up) {  // a slow link must not become the usual one
    if (baseline.size() < baseline.capacity())
      baseline.push_back(now);
    else
      baseline[baselines % baseline.size()] = now;
    ++baselines;
  }
  const std::int64_t begun =
      first_step([&](std::size_t slot) { return transfers[slot] && *transfers[slot] > bound; });
  DetectorEvent event{.step = step, .before = exchange.state, .own_s = now, .group_s = usual};
  if (!exchange.take(up ? RankState::link : RankState::calm, begun, step, options,
                     event.since_step))
    return;
  event.state = exchange.state;
  events.push_back(event);
}

Detector::Detector(const Options& options) : impl_(std::make_unique<Impl>(options)) {}
Detector::~Detector() = default;

void Detector::observe(std::int64_t step, std::span<const RankEntry> entries) {
  impl_->record(step, entries);
  const Options& options = impl_->options;
  if (impl_->rounds >= options.window && impl_->rounds % options.every == 0) impl_->decide(step);
}

std::vector<DetectorEvent> Detector::take_events() { return std::exchange(impl_->events, {}); }

RankState Detector::state(int rank) const {
  return rank < 0 ? impl_->exchange.state : impl_->tracks[static_cast<std::size_t>(rank)].state;
}

double Detector::lateness_s(int rank) const {
  return impl_->lateness[static_cast<std::size_t>(rank)];
}

std::string describe(const DetectorEvent& event, const std::string& host) {
  const bool back = event.state == RankState::calm;
  const RankState about = back ? event.before : event.state;
  const std::string own = fmt::format("{:.1f} ms", event.own_s * 1e3);
  const std::string group = fmt::format("{:.1f} ms", event.group_s * 1e3);
  if (about == RankState::link)
    return fmt::format(
        "the exchange between the ranks is {} since step {}: a transfer takes {}, usual is {}",
        back ? "back to normal" : "slow", event.since_step, own, group);
  if (event.rank < 0)
    return fmt::format(
        "{} since step {}: the slowest takes {} a micro-batch in compute, the median of "
        "all ranks is {}",
        back ? "no more than one rank is slow" : "several ranks are slow at once", event.since_step,
        own, group);
  const std::string who = fmt::format("rank {}{}{}", event.rank, host.empty() ? "" : " on ", host);
  if (about == RankState::loader)
    return fmt::format(
        "{} {} since step {}: {} a step in input, the median of the other ranks is {}", who,
        back ? "no longer waits for input" : "waits for input", event.since_step, own, group);
  const char* what = back                               ? "is back to normal"
                     : event.state == RankState::jitter ? "is unsteady"
                                                        : "is slow";
  return fmt::format(
      "{} {} since step {}: {}{} a micro-batch in compute, the median of all ranks is {}", who,
      what, event.since_step, own,
      event.state == RankState::jitter ? " or more in a tenth of the steps for" : "", group);
}

}  // namespace sidestep
