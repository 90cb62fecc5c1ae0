// The oracles of the quorum family; numbers in comments are those of the literature map,
// section 9.1.
#include "comm/quorum_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <limits>

#include "comm/close_message.h"
#include "core/base/error.h"
#include "tests/comm/quorum_rank.h"
#include "tests/comm/ranks.h"

namespace sidestep::testing {
namespace {

using Records = std::vector<QuorumRecord>;
using ::testing::HasSubstr;

QuorumSettings quorum_of(int quorum, bool carry, bool early) {
  QuorumSettings settings;
  settings.rule = {.quorum = quorum,
                   .silence_s = 0.0002,
                   .carry = carry,
                   .divisor = carry ? Divisor::nominal : Divisor::participants};
  settings.early = early;
  settings.max_sleep_us = 1500;
  return settings;
}

/// Rounds in which some rank's late work was taken in.
int late_rounds(const QuorumRecord& record) {
  int count = 0;
  for (const auto& entries : record.entries)
    for (const RankEntry& entry : entries) count += entry.late_round > 0 ? 1 : 0;
  return count;
}

/// Every rank has the same master after every round, the same results, and ends with the master.
void expect_replicas(const Records& records, std::int64_t rounds) {
  for (const QuorumRecord& record : records) {
    ASSERT_EQ(record.masters.size(), static_cast<std::size_t>(rounds));
    EXPECT_EQ(record.masters, records[0].masters);
    EXPECT_EQ(record.weights, record.masters.back());
    ASSERT_EQ(record.results.size(), static_cast<std::size_t>(rounds));
    for (std::size_t i = 0; i < record.results.size(); ++i) {
      EXPECT_EQ(record.results[i].step, static_cast<std::int64_t>(i) + 1);
      EXPECT_EQ(record.results[i].weight, records[0].results[i].weight);
      EXPECT_EQ(record.results[i].loss_sum, records[0].results[i].loss_sum);
      EXPECT_EQ(0, std::memcmp(record.entries[i].data(), records[0].entries[i].data(),
                               record.entries[i].size() * sizeof(RankEntry)));
    }
  }
}

/// By rank: samples applied and written off, from the headers that all ranks saw.
void expect_conservation(const Records& records) {
  for (std::size_t r = 0; r < records.size(); ++r) {
    std::int64_t applied = 0, written_off = 0;
    for (const auto& entries : records[0].entries) {
      applied += entries[r].samples;
      (entries[r].written_off != 0 ? written_off : applied) += entries[r].late_samples;
    }
    const QuorumEngine::Counts& counts = records[r].counts;
    EXPECT_EQ(counts.produced, records[r].produced);
    EXPECT_EQ(counts.applied, applied);
    EXPECT_EQ(counts.written_off, written_off);
    EXPECT_EQ(counts.carried, 0);
    EXPECT_EQ(records[r].produced, applied + written_off);
  }
}

struct Mode {
  bool carry, early;
};
void PrintTo(const Mode& mode, std::ostream* out) {
  *out << (mode.carry ? "carry" : "discard") << (mode.early ? ", early" : "");
}
class QuorumTest : public ::testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, QuorumTest,
                         ::testing::Values(Mode{false, false}, Mode{false, true}, Mode{true, false},
                                           Mode{true, true}));

// 1
TEST_P(QuorumTest, AllRanksEqualBspBitForBit) {
  for (const bool micro_batches : {false, true}) {
    for (const int quorum : {0, 3}) {
      QuorumSettings settings = quorum_of(quorum, GetParam().carry, GetParam().early);
      // the nominal divisor is the configured batch's, bsp's the weight that took part
      settings.whole_shares = true;
      settings.micro_batches = micro_batches;
      settings.clip_norm = micro_batches ? 0.5 : 0;
      settings.max_sleep_us = 400;
      const Records bsp = run_quorum(3, settings, 0, /*bsp=*/true);
      const Records all = run_quorum(3, settings, 300);
      expect_replicas(all, settings.rounds);
      EXPECT_EQ(all[0].masters, bsp[0].masters);
      for (std::size_t i = 0; i < all[0].results.size(); ++i) {
        const RoundResult &a = all[0].results[i], &b = bsp[0].results[i];
        EXPECT_EQ(a.weight, b.weight);
        EXPECT_EQ(a.samples, b.samples);
        EXPECT_EQ(a.correct, b.correct);
        EXPECT_EQ(a.participants, b.participants);
        EXPECT_EQ(a.index_digest, b.index_digest);
        EXPECT_EQ(a.loss_sum, b.loss_sum);
        EXPECT_EQ(a.flushed, b.flushed);
        EXPECT_EQ(a.grad_norm, b.grad_norm);
      }
    }
  }
}

// 1, unequal shares and ranks without samples
TEST(Quorum, AllRanksEqualBspWithUnequalShares) {
  QuorumSettings settings = quorum_of(0, false, true);
  settings.max_sleep_us = 200;
  const Records bsp = run_quorum(3, settings, 0, /*bsp=*/true);
  EXPECT_EQ(run_quorum(3, settings, 200)[0].masters, bsp[0].masters);
}

// 5, 8
TEST_P(QuorumTest, ReplicasAgreeAfterEveryRoundAndEverySampleIsAccountedFor) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    QuorumSettings settings = quorum_of(2, GetParam().carry, GetParam().early);
    settings.seed = seed;
    const Records records = run_quorum(4, settings, 400);
    expect_replicas(records, settings.rounds);
    expect_conservation(records);
    EXPECT_GT(late_rounds(records[0]), 0) << "nobody was late: the test shows nothing";
  }
}

// 5, in the weights: gradients are whole numbers that do not depend on the weights, the rate and
// the divisor are powers of two, so what was applied can be told exactly from the weights
TEST_P(QuorumTest, TheWeightsHoldEachAppliedGradientOnce) {
  QuorumSettings settings = quorum_of(1, GetParam().carry, GetParam().early);
  settings.whole_gradients = settings.whole_shares = true;
  settings.optimizer = {.name = "sgd", .momentum = 0};
  settings.rule.divisor = Divisor::nominal;
  settings.lr = 1.0 / 64;
  settings.rounds = 40;
  const Records records = run_quorum(4, settings, 200);
  expect_conservation(records);
  EXPECT_GT(late_rounds(records[0]), 0);
  const auto add = [&](std::vector<double>& sum, int rank, std::int64_t round) {
    for (std::int64_t s = 0; s < QuorumRank::kShare; ++s) {
      for (std::int64_t i = 0; i < QuorumRank::kLayers * QuorumRank::kWidth; ++i)
        sum[static_cast<std::size_t>(i)] +=
            static_cast<double>(QuorumRank::whole_gradient(rank, round, s, i));
    }
  };
  // Only differences are exact: take the weights after the first flush as the beginning.
  std::vector<double> sum(QuorumRank::kLayers * QuorumRank::kWidth);
  for (std::size_t i = static_cast<std::size_t>(settings.flush_every);
       i < records[0].entries.size(); ++i) {
    for (int r = 0; r < 4; ++r) {
      const RankEntry& entry = records[0].entries[i][static_cast<std::size_t>(r)];
      if (entry.samples > 0) add(sum, r, static_cast<std::int64_t>(i) + 1);
      if (entry.late_round > 0 && entry.written_off == 0) add(sum, r, entry.late_round);
    }
  }
  const auto& before = records[0].masters[static_cast<std::size_t>(settings.flush_every) - 1];
  const auto& after = records[0].masters.back();
  const double rate = settings.lr / (4.0 * QuorumRank::kShare);
  for (std::int64_t l = 0; l < QuorumRank::kLayers; ++l) {
    for (std::int64_t i = 0; i < QuorumRank::kWidth; ++i) {
      const auto at = static_cast<std::size_t>(l * 32 + i);  // parameters are padded
      const double moved = static_cast<double>(after[at]) - static_cast<double>(before[at]);
      // float32 rounds each of the 30 sums of numbers near 1 to 2^-24
      EXPECT_NEAR(moved, -rate * sum[static_cast<std::size_t>(l * QuorumRank::kWidth + i)], 4e-6);
    }
  }
}

// 8
TEST_P(QuorumTest, ReplayOfTheJournalReproducesEveryRoundUnderOtherDelays) {
  QuorumSettings settings = quorum_of(2, GetParam().carry, GetParam().early);
  if (GetParam().carry) settings.rule.age_weight = 0.5f;
  settings.seed = 1;
  const Records first = run_quorum(4, settings, 300);
  ASSERT_EQ(first[0].journal.size(), static_cast<std::size_t>(settings.rounds));
  EXPECT_TRUE(first[1].journal.empty());
  EXPECT_GT(late_rounds(first[0]), 0);
  settings.replay = first[0].journal;
  for (std::uint64_t seed = 2; seed < 4; ++seed) {
    settings.seed = seed;
    settings.max_sleep_us = seed == 2 ? 2500 : 0;
    settings.slow_rank = 1;
    settings.slow_us = seed == 2 ? 0 : 700;
    const Records again = run_quorum(4, settings, 100);
    EXPECT_EQ(again[0].masters, first[0].masters);
    EXPECT_EQ(again[0].journal, first[0].journal);
    for (std::size_t r = 0; r < 4; ++r) EXPECT_EQ(again[r].claimed, first[r].claimed);
    expect_replicas(again, settings.rounds);
  }
}

TEST(Quorum, AJournalOfOtherDataIsRefused) {
  QuorumSettings settings = quorum_of(2, true, true);
  settings.rounds = 10;
  settings.max_sleep_us = 0;
  settings.replay = run_quorum(2, settings)[0].journal;
  settings.replay[4].weight += 1;
  try {
    run_quorum(2, settings);
    FAIL() << "it was taken";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::settings);
    EXPECT_THAT(e.what(), HasSubstr("journal, round 5"));
  }
}

// 6
TEST_P(QuorumTest, NoWorkIsOlderThanTheBound) {
  QuorumSettings settings = quorum_of(1, GetParam().carry, GetParam().early);
  settings.rule.max_age = 2;
  settings.max_sleep_us = 300;
  settings.slow_rank = 1;
  settings.slow_us = 2000;
  settings.flush_every = 25;
  const Records records = run_quorum(3, settings);
  expect_replicas(records, settings.rounds);
  std::int64_t oldest = 0;
  for (const RoundResult& result : records[0].results) {
    for (const RankEntry& entry : records[0].entries[static_cast<std::size_t>(result.step) - 1])
      if (entry.late_round > 0) oldest = std::max(oldest, result.step - entry.late_round);
  }
  EXPECT_EQ(oldest, 2) << "the bound was not reached: the test shows nothing";
}

// 11
TEST_P(QuorumTest, ABlockedCoordinatorDoesNotStopRounds) {
  constexpr std::int64_t kBlockedIn = 3;
  QuorumSettings settings = quorum_of(2, GetParam().carry, GetParam().early);
  settings.max_sleep_us = 0;
  settings.whole_shares = true;  // every rank has a pass in each round
  settings.flush_every = settings.rounds = 40;
  Timeline others_went_on;
  settings.in_pass = [&](int rank, std::int64_t round) {
    if (rank == 0 && round == kBlockedIn) others_went_on.wait(1);
    if (rank == 1 && round > kBlockedIn + 20) others_went_on.advance(1);
  };
  const Records records = run_quorum(3, settings);
  expect_replicas(records, settings.rounds);
  expect_conservation(records);
  const std::vector<std::int64_t>& claimed = records[0].claimed;
  const auto after = std::find(claimed.begin(), claimed.end(), kBlockedIn) + 1;
  ASSERT_NE(after, claimed.end());
  EXPECT_GT(*after, kBlockedIn + 20);
}

TEST(Quorum, MajorityWaitsForItsInitiatorOnly) {
  QuorumSettings settings = quorum_of(0, true, true);
  settings.rule.initiator = 2;
  const Records records = run_quorum(4, settings, 100);
  expect_replicas(records, settings.rounds);
  expect_conservation(records);
  EXPECT_GT(late_rounds(records[0]), 0);
  for (const auto& entries : records[0].entries)
    EXPECT_TRUE(entries[2].begun != 0 || entries[2].late_round > 0);
}

// Else a rank that misses rounds would seem to compute in each of them.
TEST(Quorum, TimesOfAStepAreReportedOnce) {
  const Records records = run_quorum(4, quorum_of(1, true, true), 100);
  EXPECT_GT(late_rounds(records[0]), 0);
  for (std::size_t r = 0; r < records.size(); ++r) {
    std::int64_t reported = 0;
    for (const auto& entries : records[0].entries) reported += entries[r].compute_units;
    EXPECT_EQ(reported, std::ssize(records[r].claimed)) << "rank " << r;
  }
}

TEST(Quorum, OneRankAlone) {
  const QuorumSettings settings = quorum_of(1, true, true);
  const Records bsp = run_quorum(1, settings, 0, /*bsp=*/true);
  QuorumSettings participants = settings;
  participants.rule.divisor = Divisor::participants;
  const Records records = run_quorum(1, participants);
  EXPECT_EQ(records[0].masters, bsp[0].masters);
}

TEST(Quorum, AStopRequestStaysInEveryHeader) {
  QuorumSettings settings = quorum_of(0, false, true);
  settings.rounds = 10;
  settings.stop = [](int rank, std::int64_t round) { return rank == 1 && round == 4; };
  for (const QuorumRecord& record : run_quorum(3, settings))
    for (const RoundResult& result : record.results)
      EXPECT_EQ(result.stop_requests, result.step < 4 ? 0 : 1) << result.step;
}

TEST_P(QuorumTest, AGradientThatIsNotFiniteStopsAllRanks) {
  QuorumSettings settings = quorum_of(0, GetParam().carry, GetParam().early);
  settings.whole_shares = true;
  settings.max_sleep_us = 0;
  settings.factor = [](int rank, std::int64_t round) {
    return rank == 1 && round == 7 ? std::numeric_limits<float>::infinity() : 1;
  };
  std::atomic<int> stopped = 0;
  run_ranks(3, [&](auto comm) {
    QuorumRank rank(std::move(comm), settings);
    try {
      rank.run();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::numbers) << e.what();
      EXPECT_THAT(e.what(), HasSubstr("step 7: the reduced gradient"));
      ++stopped;
    }
    while (stopped < 3) std::this_thread::yield();  // nobody leaves before the others have seen it
  });
}

TEST(Quorum, WeightsThatDifferAreFoundAtTheNextFlush) {
  QuorumSettings settings = quorum_of(0, false, true);
  settings.applied = [](int rank, std::int64_t round, const View& master) {
    if (rank == 1 && round == 13) master.as<float>()[2] += 1;
  };
  std::atomic<int> stopped = 0;
  run_ranks(2, [&](auto comm) {
    QuorumRank rank(std::move(comm), settings);
    try {
      rank.run();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::internal);
      EXPECT_THAT(e.what(), HasSubstr("round 20: the ranks' weights differ"));
      ++stopped;
    }
    while (stopped < 2) std::this_thread::yield();
  });
}

TEST(Quorum, AnErrorOnOneRankFreesThePeers) {
  QuorumSettings settings = quorum_of(0, false, true);
  settings.whole_shares = true;
  settings.in_pass = [](int rank, std::int64_t round) {
    if (rank == 1 && round == 5) throw Error(Exit::data, "planted");
  };
  std::atomic<int> freed = 0;
  EXPECT_THROW(run_ranks(3,
                         [&](auto comm) {
                           Communicator& job = *comm;
                           const int r = job.rank();
                           QuorumRank rank(std::move(comm), settings);
                           try {
                             rank.run();
                           } catch (const Error& e) {
                             EXPECT_EQ(e.code(), r == 1 ? Exit::data : Exit::communication);
                             job.abort(static_cast<int>(e.code()));  // as the program does
                             ++freed;
                             throw;
                           }
                         }),
               Error);
  EXPECT_EQ(freed, 3);
}

TEST(CloseMessage, CarriesTwoBitsARankForAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 31, 32, 33, 160, 161, 1024}) {
    std::vector<std::uint8_t> directives;
    for (int r = 0; r < ranks; ++r) directives.push_back(static_cast<std::uint8_t>(r * 7 / 3 % 4));
    std::vector<Message> parts;
    for (int part = 0; part < parts_for(ranks); ++part)
      parts.push_back(close_part(9, directives, part));
    for (int r = 0; r < ranks; ++r) {
      const Message& message = parts[static_cast<std::size_t>(part_of(r))];
      EXPECT_EQ(message.round, 9);
      EXPECT_EQ(bits_of(message, r), directives[static_cast<std::size_t>(r)]) << r;
    }
  }
}

}  // namespace
}  // namespace sidestep::testing
