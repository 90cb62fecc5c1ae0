#include "core/device/event.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace sidestep {
namespace {

std::exception_ptr cause(const char* what) {
  return std::make_exception_ptr(std::runtime_error(what));
}

/// What waiting throws; empty when it returns.
std::string failure_of(const Event& event) {
  try {
    event.wait();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(Event, DefaultIsDone) {
  const Event event;
  EXPECT_TRUE(event.done());
  event.wait();
  EXPECT_EQ(event.timeline(), nullptr);
}

TEST(Event, PointZeroIsDoneAtOnce) {
  const Event event(std::make_shared<Timeline>(), 0);
  EXPECT_TRUE(event.done());
  event.wait();
}

TEST(Event, BecomesDoneWhenItsPointIsReached) {
  const auto timeline = std::make_shared<Timeline>();
  const Event second(timeline, 2);
  EXPECT_FALSE(second.done());
  EXPECT_TRUE(timeline->advance(1));
  EXPECT_FALSE(second.done());
  EXPECT_TRUE(timeline->advance(3));
  EXPECT_TRUE(second.done());
  second.wait();
}

TEST(Event, KeepsItsTimelineAlive) {
  auto timeline = std::make_shared<Timeline>();
  const Event event(timeline, 1);
  timeline->advance(1);
  timeline.reset();
  event.wait();
  EXPECT_TRUE(event.done());
}

TEST(Timeline, ValuesOnlyGrow) {
  Timeline timeline;
  timeline.advance(5);
  EXPECT_TRUE(timeline.advance(3));
  EXPECT_EQ(timeline.reached(), 5u);
}

TEST(Timeline, FailureFailsLaterPointsOnly) {
  const auto timeline = std::make_shared<Timeline>();
  timeline->advance(2);
  EXPECT_EQ(timeline->failure(), nullptr);
  timeline->fail(cause("disk full"));
  EXPECT_TRUE(timeline->failed());
  EXPECT_NE(timeline->failure(), nullptr);
  EXPECT_EQ(failure_of({timeline, 2}), "");
  EXPECT_TRUE(Event(timeline, 3).done());
  EXPECT_EQ(failure_of({timeline, 3}), "disk full");
}

TEST(Timeline, NothingIsReachedAfterAFailure) {
  const auto timeline = std::make_shared<Timeline>();
  timeline->fail(cause("first"));
  EXPECT_FALSE(timeline->advance(7));
  EXPECT_EQ(timeline->reached(), 0u);
  EXPECT_EQ(failure_of({timeline, 7}), "first");
}

TEST(Timeline, FirstFailureStays) {
  const auto timeline = std::make_shared<Timeline>();
  timeline->fail(cause("first"));
  timeline->fail(cause("second"));
  EXPECT_EQ(failure_of({timeline, 1}), "first");
}

TEST(Timeline, WakesBlockedWaiters) {
  const auto timeline = std::make_shared<Timeline>();
  std::vector<std::thread> waiters;
  for (std::uint64_t value = 1; value <= 4; ++value)
    waiters.emplace_back([event = Event(timeline, value)] { event.wait(); });
  for (std::uint64_t value = 1; value <= 4; ++value) timeline->advance(value);
  for (auto& waiter : waiters) waiter.join();
  EXPECT_EQ(timeline->reached(), 4u);
}

TEST(Timeline, FailureWakesBlockedWaiters) {
  const auto timeline = std::make_shared<Timeline>();
  std::vector<std::string> seen(4);
  std::vector<std::thread> waiters;
  for (std::string& text : seen)
    waiters.emplace_back([&text, event = Event(timeline, 9)] { text = failure_of(event); });
  timeline->advance(1);
  timeline->fail(cause("peer lost"));
  for (auto& waiter : waiters) waiter.join();
  for (const std::string& text : seen) EXPECT_EQ(text, "peer lost");
}

// A lost wake-up would hang here: two threads hand a turn to and fro, each blocking on the other.
TEST(Timeline, PingPongLosesNoWakeUp) {
  const auto ping = std::make_shared<Timeline>();
  const auto pong = std::make_shared<Timeline>();
  constexpr std::uint64_t kTurns = 20000;
  std::thread other([&] {
    for (std::uint64_t turn = 1; turn <= kTurns; ++turn) {
      ping->wait(turn);
      pong->advance(turn);
    }
  });
  for (std::uint64_t turn = 1; turn <= kTurns; ++turn) {
    ping->advance(turn);
    pong->wait(turn);
  }
  other.join();
  EXPECT_EQ(pong->reached(), kTurns);
}

TEST(Timeline, ManyWaitersOnManyProducers) {
  constexpr std::uint64_t kPoints = 2000;
  std::vector<std::shared_ptr<Timeline>> timelines;
  for (int i = 0; i < 3; ++i) timelines.push_back(std::make_shared<Timeline>());
  std::vector<std::thread> threads;
  for (const auto& timeline : timelines) {
    threads.emplace_back([timeline] {
      for (std::uint64_t value = 1; value <= kPoints; ++value) timeline->advance(value);
    });
  }
  std::vector<int> failures(4);
  for (std::size_t w = 0; w < failures.size(); ++w) {
    threads.emplace_back([&, w] {
      for (std::uint64_t value = 1; value <= kPoints; value += 1 + w) {
        for (const auto& timeline : timelines) {
          timeline->wait(value);
          failures[w] += timeline->reached() < value ? 1 : 0;
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const int count : failures) EXPECT_EQ(count, 0);
}

}  // namespace
}  // namespace sidestep
