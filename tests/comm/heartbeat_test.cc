#include "comm/heartbeat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "comm/thread_group.h"
#include "core/base/error.h"

namespace sidestep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Three ranks on a simulated clock of whole seconds; what they say is captured.
class Fleet {
 public:
  static constexpr int kRanks = 3;

  explicit Fleet(Heartbeat::Options options = {}) : comms_(make_thread_group(kRanks)) {
    options.now_ns = [this] { return now_s_ * 1'000'000'000; };
    for (int r = 0; r < kRanks; ++r) {
      beats_.push_back(
          std::make_unique<Heartbeat>(r, std::vector<std::string>{"h0", "h1", "h2"}, options));
    }
    ::testing::internal::CaptureStderr();
  }
  ~Fleet() {
    if (capturing_) said();
  }
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  Heartbeat& rank(int r) { return *beats_[static_cast<std::size_t>(r)]; }
  void set_all(std::int64_t step, Phase phase) {
    for (const auto& beat : beats_) beat->set_progress(step, phase);
  }

  /// Lets so many seconds pass; ranks in `stopped` do not run.
  void run(int seconds, const std::set<int>& stopped = {}) {
    for (int i = 0; i < seconds; ++i) {
      ++now_s_;
      for (int r = 0; r < kRanks; ++r) {
        if (stopped.contains(r)) continue;
        receive(r);
        rank(r).poll(comm(r));
      }
      for (int r = 0; r < kRanks; ++r)
        if (!stopped.contains(r)) receive(r);
    }
  }

  /// All ranks do a step each second.
  void train(int seconds, const std::set<int>& stopped = {}) {
    for (int i = 0; i < seconds; ++i) {
      ++step_;
      for (int r = 0; r < kRanks; ++r)
        if (!stopped.contains(r)) rank(r).set_progress(step_, Phase::compute);
      run(1, stopped);
    }
  }

  /// What was said since the last call.
  std::string said() {
    capturing_ = false;
    std::string text = ::testing::internal::GetCapturedStderr();
    return text;
  }
  void listen() {
    capturing_ = true;
    ::testing::internal::CaptureStderr();
  }

 private:
  Communicator& comm(int r) { return *comms_[static_cast<std::size_t>(r)]; }
  void receive(int r) {
    while (const auto message = comm(r).receive()) EXPECT_TRUE(rank(r).take(*message));
  }

  std::int64_t now_s_ = 1000;
  std::int64_t step_ = 0;
  bool capturing_ = true;
  std::vector<std::unique_ptr<Communicator>> comms_;
  std::vector<std::unique_ptr<Heartbeat>> beats_;
};

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

/// What the fleet ends with, empty if it goes on.
template <class F>
std::string communication_failure(F call) {
  try {
    call();
  } catch (const Error& e) {
    return e.code() == Exit::communication ? e.what() : "another code";
  }
  return "";
}

TEST(Heartbeat, LimitsMustRise) {
  check_limits(30, 60, 120);
  check_limits(0, 0, 0);
  check_limits(0, 60, 120);
  check_limits(30, 0, 31);
  for (const auto& [late, stalled, lost] : {std::tuple{60.0, 30.0, 120.0},
                                            {30.0, 30.0, 120.0},
                                            {30.0, 60.0, 45.0},
                                            {30.0, 0.0, 20.0},
                                            {-1.0, 60.0, 120.0}}) {
    try {
      check_limits(late, stalled, lost);
      ADD_FAILURE() << late << " " << stalled << " " << lost;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::settings);
      EXPECT_THAT(e.what(), AllOf(HasSubstr("--late-limit"), HasSubstr("--stall-limit"),
                                  HasSubstr("--lost-limit")));
    }
  }
  EXPECT_THROW(check_limits(7, 5, 120), Error);
}

TEST(Heartbeat, TheMessageOfWrongLimitsHasTheirValues) {
  try {
    check_limits(7, 5, 121);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("found 7, 5, 121"));
  }
}

TEST(Heartbeat, RanksThatTrainAreNotSpokenOf) {
  Fleet fleet;
  fleet.train(500);
  EXPECT_EQ(fleet.said(), "");
}

TEST(Heartbeat, ASilentRankIsNamedOnceAndWelcomedBack) {
  Fleet fleet;
  fleet.train(10);
  fleet.rank(0).set_progress(10, Phase::exchange);
  fleet.rank(1).set_progress(10, Phase::exchange);
  fleet.run(30, {2});
  EXPECT_EQ(fleet.said(), "");
  fleet.listen();
  fleet.run(15, {2});
  EXPECT_EQ(
      fleet.said(),
      "warning: rank 2 on host h2 is late: it has not been heard for 31 s (last step 10, phase "
      "compute)\n");
  fleet.listen();
  fleet.train(60);
  EXPECT_EQ(fleet.said(), "warning: rank 2 on host h2 is back after 46 s\n");
}

TEST(Heartbeat, AnIncidentAfterTheFirstIsNamedAgain) {
  Fleet fleet;
  fleet.train(3);
  for (int i = 0; i < 2; ++i) {
    fleet.train(40, {1});
    fleet.train(3);
  }
  const std::string text = fleet.said();
  EXPECT_EQ(count(text, "rank 1 on host h1 is late"), 2) << text;
  EXPECT_EQ(count(text, "rank 1 on host h1 is back"), 2) << text;
}

TEST(Heartbeat, ALostRankEndsTheJob) {
  Fleet fleet;
  fleet.train(8);
  EXPECT_EQ(communication_failure([&] { fleet.train(120, {1}); }), "");
  const std::string text = communication_failure([&] { fleet.train(1, {1}); });
  EXPECT_THAT(text, HasSubstr("rank 1 on host h1 has not been heard for 121 s (last step 8, phase "
                              "compute); the job ends; run again with --resume latest"));
}

TEST(Heartbeat, TheOthersMissRankZero) {
  Fleet fleet;
  fleet.train(8);
  const std::string text = communication_failure([&] { fleet.train(130, {0}); });
  EXPECT_THAT(text, HasSubstr("rank 0 on host h0 has not been heard for 121 s (last step 8"));
  EXPECT_EQ(count(fleet.said(), "rank 0 on host h0 is late"), 2) << "one line of each other rank";
}

TEST(Heartbeat, AStuckRankIsNamedButNotThoseThatWaitForIt) {
  Fleet fleet;
  fleet.set_all(20, Phase::compute);
  fleet.run(5);
  fleet.rank(0).set_progress(20, Phase::exchange);
  fleet.rank(2).set_progress(20, Phase::exchange);
  fleet.run(45);
  std::string text = fleet.said();
  EXPECT_THAT(text, HasSubstr("rank 1 on host h1 is late: it has not advanced for 31 s (last step "
                              "20, phase compute)"));
  EXPECT_EQ(count(text, "is late"), 1) << text;
  fleet.listen();
  fleet.train(1);
  fleet.set_all(21, Phase::compute);
  fleet.run(3);
  text = fleet.said();
  EXPECT_EQ(count(text, "rank 1 on host h1 goes on after"), 1) << text;
}

TEST(Heartbeat, AStalledJobNamesTheRankFurthestBehind) {
  Fleet fleet;
  fleet.set_all(20, Phase::exchange);
  fleet.rank(1).set_progress(19, Phase::exchange);
  fleet.run(90);
  std::string text = fleet.said();
  EXPECT_EQ(count(text, "stalls"), 1) << text;
  EXPECT_THAT(text, AllOf(HasSubstr("no rank's step has advanced for 61 s; furthest behind is rank "
                                    "1 on host h1 (last step 19, phase exchange)"),
                          Not(HasSubstr("is late"))));
  fleet.listen();
  fleet.set_all(21, Phase::exchange);
  fleet.run(2);
  EXPECT_EQ(count(fleet.said(), "the job goes on after"), 1);
}

TEST(Heartbeat, AStallAtOneStepNamesTheRankThatDoesNotWait) {
  Fleet fleet({.late_s = 0});
  fleet.set_all(20, Phase::exchange);
  fleet.rank(2).set_progress(20, Phase::input);
  fleet.run(70);
  EXPECT_THAT(fleet.said(), HasSubstr("furthest behind is rank 2 on host h2"));
}

class HeartbeatLongPhase : public ::testing::TestWithParam<Phase> {};
INSTANTIATE_TEST_SUITE_P(Phases, HeartbeatLongPhase,
                         ::testing::Values(Phase::start, Phase::save, Phase::evaluate),
                         [](const auto& p) { return to_string(p.param); });

TEST_P(HeartbeatLongPhase, MayLastButMustBeHeard) {
  Fleet fleet;
  fleet.train(5);
  fleet.set_all(5, Phase::exchange);
  fleet.rank(1).set_progress(5, GetParam());  // the others wait for it
  fleet.run(300);
  EXPECT_EQ(fleet.said(), "");
  fleet.listen();
  const std::string text = communication_failure([&] { fleet.run(130, {1}); });
  EXPECT_THAT(text, AllOf(HasSubstr("rank 1 on host h1 has not been heard for 121 s"),
                          HasSubstr(to_string(GetParam()))));
}

TEST(Heartbeat, ARankThatWasStoppedGoesOn) {
  for (const int stopped : {0, 1}) {
    Fleet fleet;
    fleet.train(5);
    fleet.run(100, {stopped});
    fleet.said();
    fleet.listen();
    fleet.train(50);
    const std::string text = fleet.said();
    EXPECT_EQ(count(text, "this rank did not run for 101 s"), 1) << text;
    EXPECT_EQ(count(text, "is late"), 0) << text;
  }
}

TEST(Heartbeat, AMachineThatSleptLosesNobody) {
  Fleet fleet;
  fleet.train(5);
  fleet.run(1000, {0, 1, 2});
  fleet.train(100);
  const std::string text = fleet.said();
  EXPECT_EQ(count(text, "this rank did not run for 1001 s"), 3) << text;
  EXPECT_EQ(count(text, "is late"), 0) << text;
}

TEST(Heartbeat, AfterAGapALostRankIsStillFound) {
  Fleet fleet;
  fleet.train(5);
  fleet.run(1000, {0, 1, 2});
  EXPECT_THAT(communication_failure([&] { fleet.train(125, {2}); }),
              HasSubstr("rank 2 on host h2 has not been heard for 121 s"));
}

TEST(Heartbeat, NobodyWaitsForARankThatHasEnded) {
  Fleet fleet;
  fleet.train(5);
  fleet.rank(1).set_progress(5, Phase::end);
  fleet.run(1);
  fleet.rank(0).set_progress(5, Phase::save);
  fleet.rank(2).set_progress(5, Phase::save);
  fleet.run(500, {1});
  EXPECT_EQ(fleet.said(), "");
}

TEST(Heartbeat, EndIsSentAtOnce) {
  auto comms = make_thread_group(2);
  std::int64_t now = 0;
  Heartbeat beat(1, {"a", "b"}, {.now_ns = [&] { return now; }});
  EXPECT_TRUE(beat.poll(*comms[1]));
  EXPECT_FALSE(beat.poll(*comms[1])) << "its second is not over";
  beat.set_progress(77, Phase::end);
  EXPECT_TRUE(beat.poll(*comms[1]));
  EXPECT_FALSE(beat.poll(*comms[1]));
  comms[0]->receive();
  const auto last = comms[0]->receive();
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->kind, MessageKind::heartbeat);
  EXPECT_EQ(last->words[0], 77);
  EXPECT_EQ(last->words[1], static_cast<std::int64_t>(Phase::end));
}

TEST(Heartbeat, LimitsThatAreOffNeverSpeak) {
  Fleet fleet({.late_s = 0, .stalled_s = 0, .lost_s = 0});
  fleet.set_all(3, Phase::compute);
  fleet.run(2);
  fleet.run(5000, {1});
  EXPECT_EQ(fleet.said(), "");
}

TEST(Heartbeat, OneRankAloneMayStall) {
  auto comms = make_thread_group(1);
  std::int64_t now = 0;
  Heartbeat beat(0, {"a"}, {.late_s = 0, .now_ns = [&] { return now; }});
  beat.set_progress(4, Phase::input);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 70; ++i, now += 1'000'000'000) beat.poll(*comms[0]);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("furthest behind is rank 0 on host a (last step 4, phase input)"));
}

TEST(Heartbeat, LeavesOtherMessagesAlone) {
  Heartbeat beat(0, {"a"}, {});
  EXPECT_FALSE(beat.take({.kind = MessageKind::close}));
  EXPECT_EQ(beat.idle_us(), 100'000);
  EXPECT_EQ(Heartbeat(0, {"a"}, {.every_s = 0.05}).idle_us(), 5000);
}

}  // namespace
}  // namespace sidestep::testing
