#include "comm/injector.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>

#include "core/base/error.h"
#include "core/base/rng.h"

namespace sidestep {
namespace {

using Kind = Injector::Kind;

/// Capital letters stand for numbers: R a rank, N a whole number, A the amount, F a shape.
struct Form {
  Kind kind;
  std::string_view pattern;
};
constexpr Form kForms[] = {
    {Kind::add, "rank=R:+A"},        {Kind::times, "rank=R:xA"},
    {Kind::random, "random=N:+A"},   {Kind::noise, "noise=A"},
    {Kind::exponential, "exp=A"},    {Kind::lognormal, "lognormal=A"},
    {Kind::burst, "burst=F/F/F:+A"}, {Kind::link, "link=R:xA"},
    {Kind::links, "links=A"},        {Kind::loader, "loader=R:+A"},
    {Kind::content, "content=N:xA"}, {Kind::stop, "stop=R@N:As"},
    {Kind::kill, "kill=R@N"},
};

struct Preset {
  std::string_view name, terms;
};
/// S6 and S10 depend on the run and are written out by code.
constexpr Preset kPresets[] = {
    {"S0", "noise=0.01"},
    {"S1", "random=1:+1"},
    {"S2", "random=2:+3.2"},
    {"S3", "exp=0.428571428571"},
    {"S4", "lognormal=1"},
    {"S5", "rank=0:x1.5"},
    {"S6", ""},
    {"S7", "burst=240/120/20:+0.75"},
    {"S8", "link=1:x6"},
    {"S8v", "links=3"},
    {"S9", "content=0:x3"},
    {"S10", ""},
};

/// Half of the ranks at 1x, then a quarter at 1.5x, the last quarter at 2x.
std::string mixed_fleet(int ranks) {
  std::vector<std::string> terms;
  for (int r = ranks - ranks / 2; r < ranks; ++r)
    terms.push_back(fmt::format("rank={}:x{}", r, r < ranks - ranks / 4 ? "1.5" : "2"));
  return fmt::format("{}", fmt::join(terms, ","));
}

std::string stall_and_death(int ranks, std::int64_t steps) {
  if (steps < 3)
    fail(Exit::settings,
         fmt::format("--inject: expected a run of at least 3 steps for 'S10', found "
                     "{}; set the number of steps",
                     steps));
  return fmt::format("stop=1@{}:20s,kill={}@{}", steps / 3, ranks - 1, 2 * steps / 3);
}

/// The scenario's terms with names written out.
std::vector<std::string> expand(std::string_view scenario, int ranks, std::int64_t steps) {
  std::vector<std::string> terms;
  if (scenario.empty()) return terms;
  for (std::size_t begin = 0; begin <= scenario.size();) {
    const std::size_t end = std::min(scenario.find(',', begin), scenario.size());
    const std::string_view term = scenario.substr(begin, end - begin);
    begin = end + 1;
    const auto preset = std::ranges::find(kPresets, term, &Preset::name);
    if (preset == std::end(kPresets)) {
      terms.emplace_back(term);
      continue;
    }
    const std::string text = term == "S6"    ? mixed_fleet(ranks)
                             : term == "S10" ? stall_and_death(ranks, steps)
                                             : std::string(preset->terms);
    for (std::string& part : expand(text, ranks, steps)) terms.push_back(std::move(part));
  }
  return terms;
}

template <class T>
bool read_number(std::string_view& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !(value >= 0) || !std::isfinite(static_cast<double>(value)))
    return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

/// What DropCompute multiplies a micro-batch's time with: log-normal (4, 1) cut to 1..1000, over
/// its mean, which has a closed form.
double lognormal_mean_one(std::uint64_t key, std::uint64_t i) {
  constexpr double kMu = 4, kLow = 1, kHigh = 1000;
  const auto below = [](double z) { return 0.5 * std::erfc(-z / std::numbers::sqrt2); };
  const double low = std::log(kLow) - kMu, high = std::log(kHigh) - kMu;
  const double mean = kLow * below(low) + kHigh * below(-high) +
                      std::exp(kMu + 0.5) * (below(high - 1) - below(low - 1));
  return std::clamp(std::exp(kMu + double{random_normal(key, i)}), kLow, kHigh) / mean;
}

double exponential(std::uint64_t key, std::uint64_t i) {
  return -std::log1p(-double{random_uniform(key, i)});
}

}  // namespace

Injector::Injector(std::string_view scenario, std::uint64_t seed, int ranks,
                   std::int64_t total_steps)
    : seed_(seed), ranks_(ranks) {
  check(ranks > 0, "an injector for at least one rank");
  const std::vector<std::string> terms = expand(scenario, ranks, total_steps);
  for (const std::string& text : terms) {
    terms_.push_back(parse(text));
    constexpr std::int64_t kFewestSteps = 1'000'000;
    if (terms_.back().kind == Kind::burst)
      lay_out_bursts(terms_.back(), std::max(total_steps, kFewestSteps));
  }
  text_ = fmt::format("{}", fmt::join(terms, ","));
}

Injector::Term Injector::parse(const std::string& text) const {
  for (const Form& form : kForms) {
    Term term{.kind = form.kind, .purpose = "inject " + text};
    std::string_view rest = text;
    std::size_t shapes = 0;
    const bool fits = std::ranges::all_of(form.pattern, [&](char c) {
      if (c == 'R') return read_number(rest, term.rank);
      if (c == 'N') return read_number(rest, term.number);
      if (c == 'A') return read_number(rest, term.amount);
      if (c == 'F') return read_number(rest, term.shape[shapes++]);
      const bool same = !rest.empty() && rest.front() == c;
      if (same) rest.remove_prefix(1);
      return same;
    });
    if (!fits || !rest.empty()) continue;
    check_term(term, text);
    return term;
  }
  std::vector<std::string_view> forms;
  for (const Form& form : kForms) forms.push_back(form.pattern);
  fail(Exit::settings,
       fmt::format("--inject: expected terms {} or {} (numbers for capital letters) "
                   "with commas between, found '{}'",
                   fmt::join(scenario_names(), ", "), fmt::join(forms, ", "), text));
}

void Injector::check_term(const Term& term, const std::string& text) const {
  const auto expect = [&](bool holds, const std::string& what) {
    if (!holds) fail(Exit::settings, fmt::format("--inject: expected {}, found '{}'", what, text));
  };
  expect(term.rank < ranks_, fmt::format("ranks from 0 to {}", ranks_ - 1));
  const bool factor = term.kind == Kind::times || term.kind == Kind::link ||
                      term.kind == Kind::links || term.kind == Kind::content;
  expect(!factor || term.amount >= 1, "a factor of at least 1");
  expect(term.kind != Kind::random || (term.number >= 1 && term.number <= ranks_),
         fmt::format("1 to {} random ranks", ranks_));
}

void Injector::lay_out_bursts(Term& term, std::int64_t steps) const {
  const std::uint64_t gaps = rng_key(seed_, term.purpose + " gap");
  const std::uint64_t lengths = rng_key(seed_, term.purpose + " length");
  const std::uint64_t who = rng_key(seed_, term.purpose + " rank");
  const auto whole = [&](double x) {  // a number of steps that the run can hold
    return static_cast<std::int64_t>(std::clamp(x, 0.0, static_cast<double>(steps)));
  };
  std::int64_t at = 0;
  for (std::uint64_t i = 0;; ++i) {
    const std::int64_t begin = at + 1 + whole(term.shape[0] * exponential(gaps, i));
    if (begin > steps) return;
    const double length = term.shape[1] + term.shape[2] * double{random_normal(lengths, i)};
    at = begin + std::max<std::int64_t>(1, whole(std::round(length)));
    const std::uint64_t rank = random_below(who, i, static_cast<std::uint64_t>(ranks_));
    term.bursts.push_back({begin, at, static_cast<int>(rank)});
  }
}

std::uint64_t Injector::key(const Term& term, int rank, std::int64_t step) const {
  return rng_key(seed_, term.purpose, static_cast<std::uint64_t>(rank),
                 static_cast<std::uint64_t>(step));
}

/// Selection sampling (Knuth, algorithm 3.4.2 S): each set of `number` ranks is equally likely.
bool Injector::chosen(const Term& term, int rank, std::int64_t step) const {
  const std::uint64_t k = key(term, 0, step);
  auto needed = static_cast<std::uint64_t>(term.number);
  for (int r = 0; r <= rank && needed > 0; ++r) {
    const bool taken = random_below(k, static_cast<std::uint64_t>(r),
                                    static_cast<std::uint64_t>(ranks_ - r)) < needed;
    if (taken && r == rank) return true;
    if (taken) --needed;
  }
  return false;
}

double Injector::delay(const Term& term, int rank, std::int64_t step, int unit, int units) const {
  const double share = 1.0 / units;
  switch (term.kind) {
    case Kind::add:
      return rank == term.rank ? term.amount * share : 0;
    case Kind::times:
      return rank == term.rank ? (term.amount - 1) * share : 0;
    case Kind::random:
      return unit == 0 && chosen(term, rank, step) ? term.amount : 0;
    case Kind::noise:
      return term.amount * std::abs(double{random_normal(key(term, rank, step), 0)}) * share;
    case Kind::exponential:
      return term.amount * exponential(key(term, rank, step), 0) * share;
    case Kind::lognormal:
      return 0.5 * term.amount * share *
             lognormal_mean_one(key(term, rank, step), static_cast<std::uint64_t>(unit));
    case Kind::burst: {
      const auto next = std::ranges::upper_bound(term.bursts, step, {}, &Burst::begin);
      if (next == term.bursts.begin()) return 0;
      const Burst& burst = *std::prev(next);
      return step < burst.end && rank == burst.rank ? term.amount * share : 0;
    }
    default:
      return 0;  // acts elsewhere
  }
}

double Injector::compute(int rank, std::int64_t step, int unit, int units) const {
  double sum = 0;
  for (const Term& term : terms_) sum += delay(term, rank, step, unit, units);
  return sum;
}

double Injector::loader(int rank, std::int64_t /*step*/) const {
  double sum = 0;
  for (const Term& term : terms_)
    if (term.kind == Kind::loader && term.rank == rank) sum += term.amount;
  return sum;
}

double Injector::comm_factor(int rank, std::int64_t step) const {
  constexpr double kNormal99 = 2.3263478740408408;  // 99 % of a standard normal lies below
  double factor = 1;
  for (const Term& term : terms_) {
    if (term.kind == Kind::link && term.rank == rank) factor *= term.amount;
    if (term.kind == Kind::links) {
      const double z = double{random_normal(key(term, rank, step), 0)} / kNormal99;
      factor *= std::max(1.0, std::pow(term.amount, z));
    }
  }
  return factor;
}

double Injector::content(std::span<const std::int64_t> ids,
                         std::span<const std::int32_t> labels) const {
  constexpr double kLong = 0.1, kLongInClass = 0.46, kLongElsewhere = 0.06;
  double factor = 1;
  for (const Term& term : terms_) {
    if (term.kind != Kind::content || ids.empty()) continue;
    const std::uint64_t k = rng_key(seed_, term.purpose);
    double sum = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const double probability = labels.size() != ids.size() ? kLong
                                 : labels[i] == term.number  ? kLongInClass
                                                             : kLongElsewhere;
      const double u = double{random_uniform(k, static_cast<std::uint64_t>(ids[i]))};
      sum += u < probability ? term.amount : 1;
    }
    factor *= sum / static_cast<double>(ids.size());
  }
  return factor;
}

bool Injector::by_content() const {
  return std::ranges::any_of(terms_, [](const Term& t) { return t.kind == Kind::content; });
}

double Injector::stop_seconds(int rank, std::int64_t step) const {
  for (const Term& term : terms_)
    if (term.kind == Kind::stop && term.rank == rank && term.number == step) return term.amount;
  return 0;
}

bool Injector::kills(int rank, std::int64_t step) const {
  return std::ranges::any_of(terms_, [&](const Term& t) {
    return t.kind == Kind::kill && t.rank == rank && t.number == step;
  });
}

std::vector<int> Injector::delayed_ranks(std::int64_t step) const {
  constexpr int kUnits = 8;  // only terms drawn for each micro-batch depend on it
  std::vector<int> ranks;
  for (int r = 0; r < ranks_; ++r) {
    double sum = loader(r, step);
    for (int u = 0; u < kUnits; ++u) sum += compute(r, step, u, kUnits);
    if (sum >= kDelayed) ranks.push_back(r);
  }
  return ranks;
}

std::vector<std::string> Injector::scenario_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

}  // namespace sidestep
