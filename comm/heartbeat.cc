#include "comm/heartbeat.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <tuple>
#include <utility>

#include "comm/communicator.h"
#include "core/base/error.h"
#include "core/base/log.h"

namespace sidestep {
namespace {

constexpr int kPhaseBase = 256;
/// A rank not heard for so many periods is sent every so many-th sign of life only.
constexpr int kQuietPeriods = 60;
constexpr int kSparse = 30;

std::int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::int64_t to_ns(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }
double to_s(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

/// A limit of 0 is off.
bool beyond(std::int64_t ns, double limit_s) { return limit_s > 0 && ns > to_ns(limit_s); }

/// The main thread may stay in these without a step.
bool without_steps(Phase phase) {
  return phase == Phase::start || phase == Phase::save || phase == Phase::evaluate ||
         phase == Phase::end;
}

/// Seconds without a poll after which nothing is known of the others: half the smallest limit, but
/// not what a busy machine does.
double shortest_gap(const Heartbeat::Options& o) {
  double smallest = std::numeric_limits<double>::infinity();
  for (const double limit : {o.late_s, o.stalled_s, o.lost_s})
    if (limit > 0) smallest = std::min(smallest, limit);
  return std::max(smallest / 2, 2 * o.every_s);
}

}  // namespace

const char* to_string(Phase phase) {
  constexpr std::array kNames = {"start", "input",    "compute", "exchange",
                                 "save",  "evaluate", "end"};
  return kNames[static_cast<std::size_t>(phase)];
}

void check_limits(double late, double stalled, double lost) {
  double last = 0;
  bool rising = true;
  for (const double limit : {late, stalled, lost}) {
    if (limit == 0) continue;
    rising = rising && limit > last;
    last = limit;
  }
  if (rising) return;
  fail(Exit::settings,
       fmt::format("--late-limit, --stall-limit, --lost-limit: expected seconds that rise in this "
                   "order (0 turns one off), found {}, {}, {}; choose for example 30, 60, 120",
                   late, stalled, lost));
}

Heartbeat::Heartbeat(int rank, std::vector<std::string> hosts, Options options)
    : rank_(rank), hosts_(std::move(hosts)), options_(std::move(options)), peers_(hosts_.size()) {
  check(rank >= 0 && rank < static_cast<int>(hosts_.size()), "a heartbeat knows a host a rank");
  check(options_.every_s > 0, "a heartbeat has a period");
}

void Heartbeat::set_progress(std::int64_t step, Phase phase) {
  progress_.store(step * kPhaseBase + static_cast<std::int64_t>(phase), std::memory_order_release);
}

bool Heartbeat::take(const Message& message) {
  if (message.kind != MessageKind::heartbeat) return false;
  const auto rank = static_cast<int>(message.from);
  const std::int64_t now = options_.now_ns ? options_.now_ns() : steady_ns();
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.silent) {
    log_warning(fmt::format("{} is back after {:.0f} s", name(rank), to_s(now - peer.heard)));
    for (Peer& other : peers_)  // it could not move meanwhile, nor could those who waited for it
      if (!other.stuck) other.changed = now;
  }
  peer.silent = false;
  peer.heard = now;
  update(peer, rank, {message.words[0], static_cast<Phase>(message.words[1])}, now);
  return true;
}

bool Heartbeat::poll(Communicator& control) {
  const std::int64_t now = options_.now_ns ? options_.now_ns() : steady_ns();
  note_gap(now);
  const std::int64_t packed = progress_.load(std::memory_order_acquire);
  const Progress own = {packed / kPhaseBase, static_cast<Phase>(packed % kPhaseBase)};
  Peer& self = peers_[static_cast<std::size_t>(rank_)];
  const bool ends = own.phase == Phase::end && self.at.phase != Phase::end;
  if (now < next_send_ && !ends) return false;
  next_send_ = now + to_ns(options_.every_s);
  self.heard = now;
  update(self, rank_, own, now);
  send(control, own, now);
  judge_all(now);
  return true;
}

/// Often enough to keep the period to a tenth of it.
int Heartbeat::idle_us() const {
  return std::clamp(static_cast<int>(options_.every_s * 1e5), 1000, 100'000);
}

void Heartbeat::restart(std::int64_t now) {
  for (Peer& peer : peers_) peer.heard = peer.changed = peer.stepped = now;
}

/// Whoever was stopped itself cannot tell for how long the others were silent.
void Heartbeat::note_gap(std::int64_t now) {
  const std::int64_t gap = now - last_poll_;
  last_poll_ = now;
  if (begun_ && to_s(gap) <= shortest_gap(options_)) return;
  restart(now);
  const double longest = std::max({options_.late_s, options_.stalled_s, options_.lost_s});
  if (begun_ && beyond(gap, longest / 2)) {
    log_warning(
        fmt::format("this rank did not run for {:.0f} s (was it stopped?); it goes on", to_s(gap)));
  }
  begun_ = true;
}

void Heartbeat::send(Communicator& control, const Progress& own, std::int64_t now) {
  Message message;
  message.words = {own.step, static_cast<std::int64_t>(own.phase)};
  ++sent_;
  const int first = rank_ == 0 ? 1 : 0;
  const int last = rank_ == 0 ? static_cast<int>(peers_.size()) : 1;
  for (int r = first; r < last; ++r) {
    // A rank that was stopped by hand receives nothing: what waits for it must not pile up.
    const double unheard = to_s(now - peers_[static_cast<std::size_t>(r)].heard);
    if (unheard > kQuietPeriods * options_.every_s && sent_ % kSparse != 0) continue;
    control.send(r, message);
  }
}

void Heartbeat::update(Peer& peer, int rank, const Progress& at, std::int64_t now) {
  const bool steps = at.step != peer.at.step || without_steps(at.phase);
  if (peer.stuck && (steps || at != peer.at)) {
    log_warning(fmt::format("{} goes on after {:.0f} s ({} now)", name(rank),
                            to_s(now - peer.changed), to_string(at.phase)));
    peer.stuck = false;
  }
  if (steps || at != peer.at) peer.changed = now;
  if (steps) peer.stepped = now;
  peer.at = at;
}

void Heartbeat::judge(Peer& peer, int rank, std::int64_t now) {
  if (peer.at.phase == Phase::end) return;
  const std::int64_t unheard = now - peer.heard;
  if (beyond(unheard, options_.lost_s)) {
    fail(Exit::communication,
         fmt::format("{} has not been heard for {:.0f} s ({}); the job ends; run again with "
                     "--resume latest",
                     name(rank), to_s(unheard), where(peer)));
  }
  const bool silent = beyond(unheard, options_.late_s);
  if (silent && !peer.silent) {
    log_warning(fmt::format("{} is late: it has not been heard for {:.0f} s ({})", name(rank),
                            to_s(unheard), where(peer)));
    peer.silent = true;
  }
}

/// Rank 0, of those that can speak. One that waits in an exchange waits for somebody else; and so may
/// all of them while somebody is silent.
void Heartbeat::judge_progress(Peer& peer, int rank, std::int64_t now) {
  const bool may_stay = without_steps(peer.at.phase) || peer.at.phase == Phase::exchange;
  if (may_stay || peer.stuck || std::ranges::any_of(peers_, &Peer::silent)) return;
  if (!beyond(now - peer.changed, options_.late_s)) return;
  log_warning(fmt::format("{} is late: it has not advanced for {:.0f} s ({})", name(rank),
                          to_s(now - peer.changed), where(peer)));
  peer.stuck = true;
}

void Heartbeat::judge_all(std::int64_t now) {
  if (rank_ != 0) return judge(peers_[0], 0, now);
  for (std::size_t r = 0; r < peers_.size(); ++r) judge(peers_[r], static_cast<int>(r), now);
  for (std::size_t r = 0; r < peers_.size(); ++r)
    judge_progress(peers_[r], static_cast<int>(r), now);

  const auto newest = std::ranges::max_element(peers_, {}, &Peer::stepped);
  const std::int64_t still = now - newest->stepped;
  if (!beyond(still, options_.stalled_s)) {
    if (stalled_) {
      log_warning(fmt::format("the job goes on after {:.0f} s: {} is at step {}",
                              to_s(now - stalled_since_),
                              name(static_cast<int>(newest - peers_.begin())), newest->at.step));
    }
    stalled_ = false;
    return;
  }
  if (stalled_) return;
  stalled_ = true;
  stalled_since_ = newest->stepped;
  // Of those at the same step the one that does not wait for others, then the one unheard longest.
  const auto behind = std::ranges::min_element(peers_, {}, [](const Peer& p) {
    return std::tuple(p.at.step, p.at.phase == Phase::exchange, p.heard);
  });
  log_warning(
      fmt::format("the job stalls: no rank's step has advanced for {:.0f} s; furthest "
                  "behind is {} ({})",
                  to_s(still), name(static_cast<int>(behind - peers_.begin())), where(*behind)));
}

std::string Heartbeat::name(int rank) const {
  return fmt::format("rank {} on host {}", rank, hosts_[static_cast<std::size_t>(rank)]);
}

std::string Heartbeat::where(const Peer& peer) const {
  return fmt::format("last step {}, phase {}", peer.at.step, to_string(peer.at.phase));
}

}  // namespace sidestep
