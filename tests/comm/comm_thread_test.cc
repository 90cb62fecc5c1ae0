#include "comm/comm_thread.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "comm/backoff.h"
#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/device/stream.h"
#include "tests/comm/ranks.h"
#include "tests/harness/collective_checks.h"

namespace sidestep::testing {
namespace {

const CommThread::Options kDefaults{};

Event event_of(const std::shared_ptr<Timeline>& timeline, std::uint64_t value) {
  return {timeline, value};
}

/// What an event fails with; `done` if it does not fail.
Exit outcome(const Event& event) {
  try {
    event.wait();
  } catch (const Error& e) {
    return e.code();
  }
  return Exit::done;
}

TEST(CommThread, ResultsArriveAndTheCommunicatorComesBack) {
  run_ranks(3, [](auto comm) {
    CommThread thread(std::move(comm), kDefaults);
    std::vector<double> x = {1.0 + thread.rank()};
    std::vector<std::int32_t> y = {thread.rank()};
    std::vector<std::int32_t> all(3);
    const Event a = thread.all_reduce(view_of(x), Reduce::sum, Event(), "a", 0);
    const Event b = thread.broadcast(view_of(y), 2, a, "b", 0);
    thread.all_gather(view_of(y), view_of(all), b, "c", 0).wait();
    EXPECT_EQ(x[0], 6.0);
    EXPECT_EQ(all, (std::vector<std::int32_t>{2, 2, 2}));
    const auto back = thread.stop();
    barrier(*back);
  });
}

TEST(CommThread, SaysWhatItWaitsForWhenAPeerIsLate) {
  ::testing::internal::CaptureStderr();
  run_ranks(2, [](auto comm) {
    const int rank = comm->rank();
    CommThread thread(std::move(comm), {.late_ns = 1'000'000});
    std::vector<double> x = {1.0};
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    thread.all_reduce(view_of(x), Reduce::sum, Event(), "bucket 7", 42).wait();
    EXPECT_EQ(x[0], 2.0);
  });
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("step 42: waiting for the other ranks in bucket 7"), std::string::npos)
      << said;
}

TEST(CommThread, EventsCompleteInOrderWhateverTheOrderOfTheirCauses) {
  constexpr int kJobs = 40;
  run_ranks(2,
            [](auto comm) {
              const int rank = comm->rank();
              CommThread thread(std::move(comm), {.max_in_flight = 3});
              std::vector<std::vector<float>> data(kJobs, std::vector<float>(5, 1.0f));
              std::vector<std::shared_ptr<Timeline>> causes;
              std::vector<Event> events;
              for (auto& part : data) {
                causes.push_back(std::make_shared<Timeline>());
                events.push_back(thread.all_reduce(view_of(part), Reduce::sum,
                                                   event_of(causes.back(), 1), "x", 0));
              }
              // Each rank lets them go in an order of its own.
              const std::uint64_t key = rng_key(5, "order", static_cast<std::uint64_t>(rank));
              for (std::size_t i = causes.size(); i > 0; --i) {
                const std::size_t k = random_below(key, i, i);
                causes[k]->advance(1);
                causes.erase(causes.begin() + static_cast<std::ptrdiff_t>(k));
              }
              for (std::size_t i = events.size(); i > 0; --i) {
                events[i - 1].wait();
                for (std::size_t k = 0; k < i; ++k) EXPECT_TRUE(events[k].done());
              }
              for (const auto& part : data) EXPECT_EQ(part, std::vector<float>(5, 2.0f));
            },
            {.max_delay_us = 200, .seed = 9});
}

TEST(CommThread, ACollectiveStartsOnlyAfterItsEvent) {
  run_ranks(2, [](auto comm) {
    CommThread thread(std::move(comm), kDefaults);
    Stream compute = Stream::create(Device{}, "compute");
    std::vector<float> x = {0};
    std::atomic<bool> go{false};
    compute.host([&] {
      while (!go) std::this_thread::yield();
      x[0] = 21;
    });
    const Event sum = thread.all_reduce(view_of(x), Reduce::sum, compute.record(), "x", 0);
    EXPECT_FALSE(sum.done());
    go = true;
    sum.wait();
    EXPECT_EQ(x[0], 42.0f);
  });
}

TEST(CommThread, AFailedEventFailsItAndWhatFollowsButNotWhatWasStarted) {
  run_ranks(2, [](auto comm) {
    const int rank = comm->rank();
    CommThread thread(std::move(comm), kDefaults);
    std::vector<float> x = {1};
    std::vector<float> y = {1};
    const auto cause = std::make_shared<Timeline>();
    const Event first = thread.all_reduce(view_of(x), Reduce::sum, Event(), "first", 0);
    const Event second =
        thread.all_reduce(view_of(y), Reduce::sum, event_of(cause, 1), "second", 0);
    if (rank == 0) {
      cause->fail(std::make_exception_ptr(Error(Exit::numbers, "planted")));
    } else {
      cause->advance(1);
    }
    EXPECT_EQ(outcome(first), Exit::done);
    EXPECT_EQ(x[0], 2.0f);
    if (rank == 0) {
      EXPECT_EQ(outcome(second), Exit::numbers);
      EXPECT_EQ(outcome(thread.all_reduce(view_of(y), Reduce::sum, Event(), "third", 0)),
                Exit::numbers);
    } else {
      EXPECT_EQ(outcome(second), Exit::communication);  // rank 0 leaves without it
    }
  });
}

TEST(CommThread, AnAbortingPeerFailsTheTimeline) {
  run_ranks(2, [](auto comm) {
    if (comm->rank() == 1) {
      comm->abort(3);
      return;
    }
    CommThread thread(std::move(comm), kDefaults);
    std::vector<float> x = {1};
    EXPECT_EQ(outcome(thread.all_reduce(view_of(x), Reduce::sum, Event(), "x", 0)),
              Exit::communication);
  });
}

TEST(CommThread, UnwindingGivesUpWhatPeersNeverAnswer) {
  auto group = make_thread_group(2);  // the second rank never takes part
  std::vector<float> x = {1};
  Event pending;
  const auto run = [&] {
    CommThread thread(std::move(group[0]), kDefaults);
    pending = thread.all_reduce(view_of(x), Reduce::sum, Event(), "x", 0);
    throw std::runtime_error("planted");
  };
  EXPECT_THROW(run(), std::runtime_error);
  EXPECT_EQ(outcome(pending), Exit::communication);
}

TEST(CommThread, OneRankCompletesWithTheEventAndSendsNothing) {
  CommThread thread(std::move(make_thread_group(1)[0]), kDefaults);
  std::vector<float> x = {3};
  std::vector<float> all = {0};
  const auto cause = std::make_shared<Timeline>();
  const Event after = event_of(cause, 1);
  const Event sum = thread.all_reduce(view_of(x), Reduce::sum, after, "x", 0);
  EXPECT_EQ(sum.timeline(), after.timeline());
  EXPECT_EQ(sum.value(), after.value());
  EXPECT_EQ(thread.broadcast(view_of(x), 0, after, "x", 0).timeline(), after.timeline());
  const Event gathered = thread.all_gather(view_of(x), view_of(all), after, "x", 0);
  EXPECT_FALSE(gathered.done());
  cause->advance(1);
  gathered.wait();
  EXPECT_EQ(all[0], 3.0f);
}

TEST(CommThread, MoreJobsThanTheQueueBeganWith) {
  constexpr std::size_t kJobs = 700;
  run_ranks(2, [](auto comm) {
    CommThread thread(std::move(comm), kDefaults);
    std::vector<std::int64_t> x(kJobs);
    const auto gate = std::make_shared<Timeline>();
    Event last;
    for (std::size_t i = 0; i < kJobs; ++i) {
      x[i] = static_cast<std::int64_t>(i);
      View one = view_of(x);
      one.data += i * sizeof(std::int64_t);
      one.shape = Shape{1};
      last = thread.all_reduce(one, Reduce::sum, event_of(gate, 1), "x", 0);
    }
    gate->advance(1);
    last.wait();
    for (std::size_t i = 0; i < kJobs; ++i) EXPECT_EQ(x[i], static_cast<std::int64_t>(2 * i));
  });
}

/// Two ranks as seen by the comm thread; its collectives finish when the test says so.
class HeldCommunicator final : public Communicator {
 public:
  struct State {
    std::atomic<int> started{0};
    std::atomic<int> finished{0};
    std::atomic<int> most_in_flight{0};
    std::atomic<int> tests{0};
    std::atomic<bool> go{false};
  };
  explicit HeldCommunicator(State& state) : state_(state) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::string_view kind() const override { return "held"; }
  std::unique_ptr<Request> start_all_reduce(View, Reduce) override {
    const int in_flight = ++state_.started - state_.finished;
    state_.most_in_flight = std::max(state_.most_in_flight.load(), in_flight);
    return std::make_unique<Held>(state_);
  }
  std::unique_ptr<Request> start_all_gather(View, View) override { return nullptr; }
  std::unique_ptr<Request> start_broadcast(View, int) override { return nullptr; }
  void send(int, Message) override {}
  std::optional<Message> receive() override { return std::nullopt; }
  std::unique_ptr<Communicator> duplicate() override { return nullptr; }
  void abort(int) noexcept override {}

 private:
  struct Held final : Request {
    explicit Held(State& s) : state(s) {}
    bool test() override {
      ++state.tests;
      if (state.go) ++state.finished;
      return state.go;
    }
    State& state;
  };
  State& state_;
};

TEST(CommThread, NoMoreInFlightThanAllowed) {
  HeldCommunicator::State state;
  CommThread thread(std::make_unique<HeldCommunicator>(state), {.max_in_flight = 3});
  std::vector<float> x = {1};
  Event last;
  for (int i = 0; i < 10; ++i) last = thread.all_reduce(view_of(x), Reduce::sum, Event(), "x", 0);
  while (state.tests < 20) std::this_thread::yield();
  EXPECT_EQ(state.started, 3);
  state.go = true;
  last.wait();
  EXPECT_EQ(state.started, 10);
  EXPECT_EQ(state.most_in_flight, 3);
}

TEST(CommThread, APendingEventHoldsBackOnlyWhatFollows) {
  HeldCommunicator::State state;
  CommThread thread(std::make_unique<HeldCommunicator>(state), kDefaults);
  std::vector<float> x = {1};
  const auto cause = std::make_shared<Timeline>();
  const Event first = thread.all_reduce(view_of(x), Reduce::sum, Event(), "first", 0);
  const Event second = thread.all_reduce(view_of(x), Reduce::sum, event_of(cause, 1), "second", 0);
  while (state.tests < 5) std::this_thread::yield();
  EXPECT_EQ(state.started, 1);
  state.go = true;
  first.wait();  // the second, not started, does not keep the first from being tested
  EXPECT_FALSE(second.done());
  cause->advance(1);
  second.wait();
  EXPECT_EQ(state.started, 2);
}

TEST(Backoff, DoublesUpToItsLimit) {
  Backoff backoff(50);
  std::vector<std::int64_t> pauses;
  for (int i = 0; i < 6; ++i) {
    pauses.push_back(backoff.next().count());
    backoff.pause();
  }
  EXPECT_EQ(pauses, (std::vector<std::int64_t>{5, 10, 20, 40, 50, 50}));
  backoff.reset();
  EXPECT_EQ(backoff.next().count(), 5);
}

TEST(CommThread, TheHookIsCalledBeforeEachCollective) {
  run_ranks(2, [](auto comm) {
    std::vector<std::pair<std::size_t, std::int64_t>> seen;
    std::vector<double> x(10);
    std::vector<double> all(20);
    {
      CommThread thread(std::move(comm),
                        {.before_start = [&](std::size_t bytes, std::int64_t step) {
                          seen.emplace_back(bytes, step);
                        }});
      thread.all_reduce(view_of(x), Reduce::sum, Event(), "a", 3);
      thread.all_gather(view_of(x), view_of(all), Event(), "b", 4).wait();
    }
    EXPECT_EQ(seen, (std::vector<std::pair<std::size_t, std::int64_t>>{{80, 3}, {160, 4}}));
  });
}

TEST(CommThread, TracesEachCollectiveOfTheWindow) {
  run_ranks(2, [](auto comm) {
    Tracer tracer(16);
    tracer.set_window(1, 2);
    CommThread thread(std::move(comm), {.tracer = &tracer});
    std::vector<float> x = {1};
    for (std::int64_t step = 0; step < 4; ++step)
      thread.all_reduce(view_of(x), Reduce::sum, Event(), "all-reduce x", step);
    thread.stop();
    const auto spans = tracer.spans();
    ASSERT_EQ(spans.size(), 2u);
    EXPECT_EQ(spans[1].step, 2);
    EXPECT_STREQ(spans[0].name, "all-reduce x");
    EXPECT_EQ(spans[0].row, TraceRow::communication);
    EXPECT_LE(spans[0].begin_ns, spans[0].end_ns);
  });
}

}  // namespace
}  // namespace sidestep::testing
