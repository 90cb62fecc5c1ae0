// Order, waits, failures and allocation of CPU streams in both modes.
#include "core/device/stream.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "tests/harness/allocation_count.h"

namespace sidestep {
namespace {

using testing::allocation_count;

/// What a call throws; empty when it returns.
template <class Call>
std::string failure_of(Call call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

class StreamModes : public ::testing::TestWithParam<StreamMode> {
 protected:
  static Stream make(std::string_view name = "s") { return Stream::create({}, name, GetParam()); }
};

TEST_P(StreamModes, RunsTasksInOrder) {
  std::vector<int> order;
  Stream stream = make();
  for (int i = 0; i < 1000; ++i) stream.host([&order, i] { order.push_back(i); });
  stream.synchronize();
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST_P(StreamModes, EventCompletesAfterEarlierWork) {
  Stream stream = make();
  int value = 0;
  stream.host([&value] { value = 1; });
  const Event event = stream.record();
  event.wait();
  EXPECT_TRUE(event.done());
  EXPECT_EQ(value, 1);
}

TEST_P(StreamModes, EmptyStreamIsDone) {
  Stream stream = make();
  EXPECT_TRUE(stream.record().done());
  stream.synchronize();
}

TEST_P(StreamModes, LaterWorkStartsAfterTheEventOfAnotherStream) {
  Stream producer = make("producer");
  Stream consumer = make("consumer");
  int value = 0;
  int seen = -1;
  for (int i = 1; i <= 100; ++i) {
    producer.host([&value, i] { value = i; });
    consumer.wait(producer.record());
    consumer.host([&value, &seen] { seen = value; });
    producer.wait(consumer.record());
  }
  producer.synchronize();
  EXPECT_EQ(seen, 100);
}

TEST_P(StreamModes, WaitingForADefaultOrOwnEventChangesNothing) {
  Stream stream = make();
  int value = 0;
  stream.wait(Event());
  stream.host([&value] { ++value; });
  stream.wait(stream.record());
  stream.host([&value] { ++value; });
  stream.synchronize();
  EXPECT_EQ(value, 2);
}

TEST_P(StreamModes, AFailureSkipsLaterTasksAndFailsLaterEvents) {
  Stream stream = make();
  bool ran = false;
  stream.host([] {});
  const Event before = stream.record();
  stream.host([] { fail(Exit::data, "first cause"); });
  const Event at = stream.record();
  stream.host([&ran] {
    ran = true;
    throw std::runtime_error("second");
  });
  const Event after = stream.record();
  EXPECT_EQ(failure_of([&] { stream.synchronize(); }), "first cause");
  EXPECT_EQ(failure_of([&] { before.wait(); }), "");
  EXPECT_EQ(failure_of([&] { at.wait(); }), "first cause");
  EXPECT_EQ(failure_of([&] { after.wait(); }), "first cause");
  EXPECT_FALSE(ran);
  stream.host([&ran] { ran = true; });
  EXPECT_EQ(failure_of([&] { stream.synchronize(); }), "first cause");
  EXPECT_FALSE(ran);
}

TEST_P(StreamModes, TheErrorKeepsItsTypeAndCode) {
  Stream stream = make();
  stream.host([] { fail(Exit::numbers, "loss is not finite"); });
  try {
    stream.synchronize();
    FAIL() << "synchronize() returned";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::numbers);
  }
}

TEST_P(StreamModes, WaitingForAFailedEventFailsTheStream) {
  Stream a = make("a");
  Stream b = make("b");
  Stream c = make("c");
  bool ran = false;
  a.host([] { throw std::runtime_error("root"); });
  b.wait(a.record());
  b.host([&ran] { ran = true; });
  c.wait(b.record());
  c.host([&ran] { ran = true; });
  EXPECT_EQ(failure_of([&] { c.synchronize(); }), "root");
  EXPECT_EQ(failure_of([&] { b.record().wait(); }), "root");
  EXPECT_FALSE(ran);
}

TEST_P(StreamModes, AnEventReachedBeforeAFailureFailsNobody) {
  Stream a = make("a");
  Stream b = make("b");
  a.host([] {});
  const Event good = a.record();
  a.host([] { throw std::runtime_error("later"); });
  EXPECT_EQ(failure_of([&] { a.synchronize(); }), "later");
  bool ran = false;
  b.wait(good);
  b.host([&ran] { ran = true; });
  b.synchronize();
  EXPECT_TRUE(ran);
}

TEST_P(StreamModes, CapturesAreGoneWhenTheEventIsDone) {
  Stream stream = make();
  auto token = std::make_shared<int>(0);
  for (int i = 0; i < 100; ++i) {
    stream.host([token] { ++*token; });
    stream.record().wait();
    ASSERT_EQ(token.use_count(), 1);
  }
  EXPECT_EQ(*token, 100);
}

TEST_P(StreamModes, DestructionFinishesTheWorkAndDropsFailures) {
  std::atomic<int> ran = 0;
  {
    Stream stream = make();
    for (int i = 0; i < 500; ++i) stream.host([&ran] { ++ran; });
    stream.host([] { throw std::runtime_error("dropped"); });
  }
  EXPECT_EQ(ran, 500);
}

TEST_P(StreamModes, EventsOutliveTheirStream) {
  Event good;
  Event bad;
  {
    Stream stream = make();
    stream.host([] {});
    good = stream.record();
    stream.host([] { throw std::runtime_error("gone"); });
    bad = stream.record();
  }
  EXPECT_EQ(failure_of([&] { good.wait(); }), "");
  EXPECT_EQ(failure_of([&] { bad.wait(); }), "gone");
}

TEST_P(StreamModes, MovesWithItsWork) {
  int value = 0;
  Stream stream = make("first");
  stream.host([&value] { ++value; });
  Stream moved = std::move(stream);
  moved.host([&value] { ++value; });
  moved = make("second");
  EXPECT_EQ(value, 2);
  EXPECT_EQ(moved.name(), "second");
  EXPECT_EQ(moved.device(), Device{});
  EXPECT_EQ(moved.native(), nullptr);
}

TEST_P(StreamModes, ASteadyLoadAllocatesNothing) {
  Stream a = make("a");
  Stream b = make("b");
  std::array<std::byte, 128> payload{};
  std::uint64_t sum = 0;
  const auto step = [&] {
    for (int i = 0; i < 100; ++i) {  // two tasks each: fewer than the first ring holds
      a.host([payload, &sum] { sum += payload.size(); });
      b.wait(a.record());
      b.host([&sum] { ++sum; });
      a.wait(b.record());
    }
    a.synchronize();
    b.synchronize();
  };
  step();
  step();
  const std::int64_t before = allocation_count();
  step();
  step();
  EXPECT_EQ(allocation_count(), before);
  EXPECT_EQ(sum, 4u * 100u * 129u);
}

INSTANTIATE_TEST_SUITE_P(All, StreamModes,
                         ::testing::Values(StreamMode::threaded, StreamMode::direct),
                         [](const auto& mode) {
                           return mode.param == StreamMode::threaded ? "threaded" : "direct";
                         });

TEST(ThreadedStream, RunsInItsOwnNamedThread) {
  Stream stream = Stream::create({}, "a-rather-long-stream-name");
  char name[16] = {};
  std::thread::id id;
  stream.host([&] {
    id = std::this_thread::get_id();
    pthread_getname_np(pthread_self(), name, sizeof name);
  });
  stream.synchronize();
  EXPECT_NE(id, std::this_thread::get_id());
  EXPECT_STREQ(name, "a-rather-long-s");
  EXPECT_EQ(stream.name(), "a-rather-long-stream-name");
}

TEST(ThreadedStream, WaitDoesNotBlockTheHost) {
  Stream stream = Stream::create({}, "s");
  const auto gate = std::make_shared<Timeline>();
  std::atomic<bool> ran = false;
  stream.wait(Event(gate, 1));
  stream.host([&ran] { ran = true; });
  const Event end = stream.record();
  EXPECT_FALSE(end.done());
  EXPECT_FALSE(ran);
  gate->advance(1);
  end.wait();
  EXPECT_TRUE(ran);
}

TEST(ThreadedStream, WaitsForAFailedForeignTimeline) {
  Stream stream = Stream::create({}, "s");
  const auto comm = std::make_shared<Timeline>();
  stream.wait(Event(comm, 1));
  comm->fail(std::make_exception_ptr(Error(Exit::communication, "rank 3 is gone")));
  EXPECT_EQ(failure_of([&] { stream.synchronize(); }), "rank 3 is gone");
}

TEST(ThreadedStream, TakesFarMoreTasksThanItsFirstRing) {
  Stream stream = Stream::create({}, "s");
  const auto gate = std::make_shared<Timeline>();
  stream.wait(Event(gate, 1));
  int next = 0;
  int wrong = 0;
  for (int i = 0; i < 5000; ++i) stream.host([&, i] { wrong += next++ == i ? 0 : 1; });
  gate->advance(1);
  stream.synchronize();
  EXPECT_EQ(next, 5000);
  EXPECT_EQ(wrong, 0);
}

TEST(DirectStream, RunsInTheCallingThreadAtOnce) {
  Stream stream = Stream::create({}, "s", StreamMode::direct);
  std::thread::id id;
  stream.host([&id] { id = std::this_thread::get_id(); });
  EXPECT_EQ(id, std::this_thread::get_id());
}

}  // namespace
}  // namespace sidestep
