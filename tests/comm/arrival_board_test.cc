#include "comm/arrival_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <vector>

#include "core/base/error.h"
#include "core/base/rng.h"

namespace sidestep::testing {
namespace {

using ::testing::ElementsAre;
using Bits = std::vector<std::uint8_t>;

Bits close(ArrivalBoard& board) {
  const std::span<const std::uint8_t> bits = board.close();
  return {bits.begin(), bits.end()};
}

/// The header of a closed round, by who had begun it.
void settle(ArrivalBoard& board, const std::vector<int>& begun) {
  std::vector<RankEntry> entries(begun.size());
  for (std::size_t r = 0; r < begun.size(); ++r) entries[r].begun = begun[r];
  board.settle(entries);
}

TEST(ArrivalBoard, AllRanksMustArriveWithoutAQuorum) {
  ArrivalBoard board(3);
  board.open(1, {}, false, 0);
  board.arrive(0, 1, 1);
  board.arrive(2, 1, 2);
  EXPECT_FALSE(board.closes(1e9));
  board.arrive(1, 1, 3);
  EXPECT_TRUE(board.closes(3));
  EXPECT_THAT(close(board), ElementsAre(kFresh, kFresh, kFresh));
  EXPECT_FALSE(board.closes(1e9));
}

TEST(ArrivalBoard, AQuorumClosesAfterSilence) {
  ArrivalBoard board(4);
  board.open(1, {.quorum = 2, .silence_s = 0.5}, false, 0);
  board.arrive(3, 1, 1);
  EXPECT_FALSE(board.closes(100));
  board.arrive(1, 1, 2);
  EXPECT_FALSE(board.closes(2.4));
  board.arrive(0, 1, 2.4);  // another arrival: the silence begins anew
  EXPECT_FALSE(board.closes(2.8));
  EXPECT_TRUE(board.closes(2.9));
  EXPECT_THAT(close(board), ElementsAre(kFresh, kFresh, 0, kFresh));
}

TEST(ArrivalBoard, NobodyWaitsForARankThatIsKnownToBeBusy) {
  ArrivalBoard board(3);
  const RoundRule rule{.quorum = 2, .silence_s = 10};
  board.open(1, rule, false, 0);
  board.arrive(0, 1, 1);
  board.arrive(1, 1, 1);
  EXPECT_FALSE(board.closes(2));
  EXPECT_TRUE(board.closes(11));
  EXPECT_THAT(close(board), ElementsAre(kFresh, kFresh, 0));
  settle(board, {1, 1, 1});
  EXPECT_EQ(board.in_flight(2), 1);
  board.open(2, rule, false, 11);
  board.arrive(0, 2, 12);
  board.arrive(1, 2, 12);
  EXPECT_TRUE(board.closes(12));  // no silence: the third is busy
  board.deposit(2, 1, true, 12);  // now it may come, too
  EXPECT_EQ(board.in_flight(2), 0);
  EXPECT_FALSE(board.closes(12));
  EXPECT_TRUE(board.closes(22));
  EXPECT_THAT(close(board), ElementsAre(kFresh, kFresh, kLate));
  settle(board, {1, 1, 0});
  EXPECT_EQ(board.in_flight(2), 0);
  board.open(3, rule, false, 22);
  board.arrive(2, 3, 23);
  board.arrive(0, 3, 23);
  EXPECT_TRUE(board.closes(33));
  EXPECT_THAT(close(board), ElementsAre(kFresh, 0, kFresh));  // deposited work is taken in once
}

TEST(ArrivalBoard, ADepositMayComeBeforeTheHeaderThatTellsOfIt) {
  ArrivalBoard board(2);
  board.open(1, {.quorum = 1}, false, 0);
  board.arrive(0, 1, 1);
  board.close();
  board.arrive(1, 1, 1);  // too late: it changes nothing
  board.deposit(1, 1, true, 1);
  settle(board, {1, 1});
  EXPECT_EQ(board.in_flight(1), 0);
  board.open(2, {.quorum = 1}, false, 2);
  board.arrive(1, 2, 2);
  EXPECT_THAT(close(board), ElementsAre(0, kFresh | kLate));
}

TEST(ArrivalBoard, AFlushTakesAllWhateverTheRule) {
  for (const RoundRule& rule : {RoundRule{.quorum = 1}, RoundRule{.initiator = 0}}) {
    ArrivalBoard board(2);
    board.open(1, rule, true, 0);
    board.arrive(0, 1, 1);
    EXPECT_FALSE(board.closes(1e9));
    board.arrive(1, 1, 2);
    EXPECT_TRUE(board.closes(2));
  }
}

TEST(ArrivalBoard, TheInitiatorClosesFreshOrWithADeposit) {
  ArrivalBoard board(3);
  const RoundRule rule{.initiator = 1};
  board.open(1, rule, false, 0);
  board.arrive(0, 1, 1);
  board.arrive(2, 1, 1);
  EXPECT_FALSE(board.closes(1e9));
  board.arrive(1, 1, 2);
  EXPECT_TRUE(board.closes(2));
  board.close();
  settle(board, {1, 1, 1});
  board.open(2, {.initiator = 0}, false, 3);
  board.arrive(0, 2, 4);
  board.close();
  settle(board, {1, 1, 0});  // rank 1 is busy with round 2
  board.open(3, rule, false, 5);
  board.arrive(0, 3, 6);
  EXPECT_FALSE(board.closes(1e9));
  board.deposit(1, 2, true, 7);
  EXPECT_TRUE(board.closes(7));
}

TEST(ArrivalBoard, WorkWithoutSamplesLeavesNothingToTakeIn) {
  ArrivalBoard board(2);
  board.open(1, {.quorum = 1}, false, 0);
  board.arrive(0, 1, 1);
  board.close();
  settle(board, {1, 1});
  board.open(2, {.quorum = 1}, false, 2);
  board.deposit(1, 1, false, 2);
  board.arrive(0, 2, 3);
  EXPECT_THAT(close(board), ElementsAre(kFresh, 0));
}

TEST(ArrivalBoard, ARecordedRoundClosesExactlyAsItDid) {
  ArrivalBoard board(3);
  const Bits recorded{kFresh, 0, 0};
  board.open(1, {}, false, 0, recorded);
  board.arrive(1, 1, 1);
  board.arrive(2, 1, 1);
  EXPECT_FALSE(board.closes(1e9));
  board.arrive(0, 1, 2);
  EXPECT_TRUE(board.closes(2));
  EXPECT_EQ(close(board), recorded);
  settle(board, {1, 1, 1});
  const Bits next{kFresh, kFresh | kLate, 0};
  board.open(2, {}, false, 3, next);
  board.arrive(0, 2, 4);
  board.deposit(2, 1, true, 4);  // was taken in later
  board.deposit(1, 1, true, 5);
  EXPECT_FALSE(board.closes(1e9));
  board.arrive(1, 2, 6);
  EXPECT_TRUE(board.closes(6));
  EXPECT_EQ(close(board), next);
}

TEST(ArrivalBoard, BrokenProtocolsAreRefused) {
  ArrivalBoard board(2);
  board.open(1, {.quorum = 1}, false, 0);
  EXPECT_THROW(board.open(2, {}, false, 0), Error);
  board.arrive(0, 1, 1);
  EXPECT_THROW(board.arrive(0, 1, 1), Error);
  board.close();
  EXPECT_THROW(board.close(), Error);
  settle(board, {1, 1});
  EXPECT_THROW(board.open(3, {}, false, 0), Error);
  board.open(2, {.quorum = 1}, false, 2);
  board.deposit(1, 1, true, 2);
  EXPECT_THROW(board.deposit(1, 2, true, 2), Error);
}

/// Ranks, messages and headers on a simulated clock, by the engine's protocol.
class Simulation {
 public:
  Simulation(int ranks, const RoundRule& rule, std::uint64_t seed)
      : rule_(rule), key_(rng_key(seed, "simulation")), board_(ranks) {
    ranks_.resize(static_cast<std::size_t>(ranks));
    open_board(1);
    for (std::size_t r = 0; r < ranks_.size(); ++r) at(latency(), [this, r] { open(r, 1); });
    at(0, [this] { poll(); });
  }

  void run(std::int64_t rounds) {
    rounds_ = rounds;
    while (!events_.empty()) {
      const auto event = events_.top();
      events_.pop();
      now_ = event.time;
      event.act();
    }
  }

  std::int64_t closed = 0, oldest = 0, waited_at_bound = 0, taken_in = 0, claimed = 0;

 private:
  struct Rank {
    std::int64_t open = 0, closed = 0;  ///< newest round it knows to be open, closed
    std::int64_t last = 0;              ///< newest round it has worked on
    std::int64_t busy = 0;              ///< round it works on or has not got rid of
    bool done = false, missed = false;
  };
  struct Event {
    double time;
    std::uint64_t number;
    std::function<void()> act;
    bool operator<(const Event& other) const {
      return time > other.time || (time == other.time && number > other.number);
    }
  };

  void at(double delay, std::function<void()> act) {
    events_.push({now_ + delay, ++number_, std::move(act)});
  }
  double draw() { return static_cast<double>(random_uniform(key_, ++drawn_)); }
  double latency() { return 0.03 * draw(); }
  /// Messages between a rank and the board keep their order.
  void deliver(double& last, std::function<void()> act) {
    last = std::max(last, now_ + latency());
    at(last - now_, std::move(act));
  }
  void tell(std::size_t r, std::function<void()> act) { deliver(sent_[r], std::move(act)); }
  void hear(std::size_t r, std::function<void()> act) { deliver(heard_[r], std::move(act)); }
  double compute(std::size_t r) {
    const double jitter = draw() < 0.1 ? 5 * draw() : 0.2 * draw();
    return (r == 1 ? 2.5 : 1) + jitter;
  }

  void open_board(std::int64_t round) { board_.open(round, rule_, flush(round), now_); }
  bool flush(std::int64_t round) const { return round % 20 == 0; }

  void open(std::size_t r, std::int64_t round) {
    ranks_[r].open = round;
    try_claim(r);
  }

  void try_claim(std::size_t r) {
    Rank& rank = ranks_[r];
    if (rank.busy != 0 || rank.open <= rank.last || rank.closed >= rank.open) return;
    rank.busy = rank.last = rank.open;
    rank.done = rank.missed = false;
    ++claimed;
    at(compute(r), [this, r] { complete(r); });
  }

  void complete(std::size_t r) {
    Rank& rank = ranks_[r];
    rank.done = true;
    if (rank.missed) return deposit(r);
    tell(r, [this, r, k = rank.busy] { board_.arrive(static_cast<int>(r), k, now_); });
  }

  void deposit(std::size_t r) {
    const std::int64_t k = ranks_[r].busy;
    tell(r, [this, r, k] {
      board_.deposit(static_cast<int>(r), k, true, now_);
      waiting_[r] = k;
      hear(r, [this, r] {  // the board's answer
        ranks_[r].busy = 0;
        try_claim(r);
      });
    });
  }

  void poll() {
    if (board_.closes(now_)) {
      close();
    } else if (at_bound()) {
      ++waited_at_bound;
    }
    if (closed < rounds_) at(0.01, [this] { poll(); });
  }

  bool at_bound() const {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const std::int64_t k = board_.in_flight(static_cast<int>(r));
      if (k > 0 && rule_.max_age > 0 && board_.round() + 1 - k > rule_.max_age) return true;
    }
    return false;
  }

  void close() {
    const std::int64_t round = board_.round();
    EXPECT_FALSE(at_bound() && round > closed + 1);
    const Bits bits = sidestep::testing::close(board_);
    closed = round;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if ((bits[r] & kFresh) != 0) ++taken_in;
      if ((bits[r] & kLate) != 0) {
        ++taken_in;
        oldest = std::max(oldest, round - waiting_[r]);
        waiting_.erase(r);
      }
    }
    if (flush(round)) {
      EXPECT_TRUE(waiting_.empty());
      EXPECT_EQ(taken_in, claimed);  // nothing is in flight after it
    }
    entries_.assign(ranks_.size(), RankEntry{});
    told_ = 0;
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      hear(r, [this, r, bit = bits[r]] { closes(r, (bit & kFresh) != 0); });
  }

  /// The rank hears of the close and joins the header.
  void closes(std::size_t r, bool fresh) {
    Rank& rank = ranks_[r];
    rank.closed = closed;
    if (rank.busy == closed) {
      entries_[r].begun = 1;
      if (fresh) {
        rank.busy = 0;
      } else {
        rank.missed = true;
        if (rank.done) deposit(r);
      }
    } else {
      EXPECT_FALSE(fresh);
    }
    if (++told_ < ranks_.size()) return;
    board_.settle(entries_);
    if (closed == rounds_) return;
    open_board(closed + 1);
    for (std::size_t other = 0; other < ranks_.size(); ++other)
      at(latency(), [this, other, next = closed + 1] { open(other, next); });
  }

  const RoundRule rule_;
  const std::uint64_t key_;
  ArrivalBoard board_;
  std::vector<Rank> ranks_;
  std::map<std::size_t, double> sent_, heard_;   ///< by rank: when the last message arrives
  std::map<std::size_t, std::int64_t> waiting_;  ///< by rank: the round of deposited work
  std::vector<RankEntry> entries_;
  std::size_t told_ = 0;
  std::int64_t rounds_ = 0;
  double now_ = 0;
  std::uint64_t number_ = 0, drawn_ = 0;
  std::priority_queue<Event> events_;
};

TEST(ArrivalBoard, AgeNeverExceedsTheBoundAndRoundsGoOn) {
  constexpr std::int64_t kRounds = 400;
  for (const int max_age : {1, 2, 3, 0}) {
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      const RoundRule rule{.quorum = 2, .silence_s = 0.05, .carry = true, .max_age = max_age};
      Simulation simulation(5, rule, seed);
      simulation.run(kRounds);
      EXPECT_EQ(simulation.closed, kRounds);
      if (max_age == 0) {
        EXPECT_GT(simulation.oldest, 3);
      } else {
        EXPECT_EQ(simulation.oldest, max_age);
        EXPECT_GT(simulation.waited_at_bound, 0);
      }
    }
  }
}

TEST(ArrivalBoard, EveryRuleKeepsRoundsGoing) {
  constexpr std::int64_t kRounds = 200;
  for (const RoundRule& rule :
       {RoundRule{}, RoundRule{.quorum = 1}, RoundRule{.quorum = 4, .silence_s = 0.2},
        RoundRule{.quorum = 5}, RoundRule{.initiator = 1},
        RoundRule{.initiator = 3, .max_age = 1}}) {
    Simulation simulation(5, rule, 11);
    simulation.run(kRounds);
    EXPECT_EQ(simulation.closed, kRounds);
    EXPECT_EQ(simulation.taken_in, simulation.claimed);
  }
}

}  // namespace
}  // namespace sidestep::testing
