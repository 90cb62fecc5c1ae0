// Agents of the comm thread: control messages beside its queue of collectives.
#include "comm/comm_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "comm/comm_thread.h"
#include "core/base/error.h"
#include "tests/comm/ranks.h"
#include "tests/harness/collective_checks.h"
#include "tests/harness/message_checks.h"
#include "tests/harness/token_agent.h"

namespace sidestep::testing {
namespace {

constexpr int kForEverUs = 1'000'000'000;

CommThread::Options with_control() { return {.control = true}; }

/// An agent made of functions.
class ProbeAgent final : public CommAgent {
 public:
  std::function<bool(Communicator&)> on_poll = [](Communicator&) { return false; };
  std::function<bool(const Message&)> on_message = [](const Message&) { return false; };
  int idle = 100;
  std::atomic<int> polls{0};

  bool poll(Communicator& control) override {
    const bool progress = on_poll(control);
    ++polls;
    return progress;
  }
  bool take(const Message& message) override { return on_message(message); }
  int idle_us() const override { return idle; }
};

void wait_for_polls(const ProbeAgent& agent, int more) {
  const int target = agent.polls + more;
  while (agent.polls < target) std::this_thread::yield();
}

template <class F>
std::string failure_of(const Event& event, F expected) {
  try {
    event.wait();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), expected);
    return e.what();
  }
  return "no failure";
}

TEST(CommAgent, MessagesGoAroundBesideCollectives) {
  run_ranks(3,
            [](auto comm) {
              CommThread thread(std::move(comm), with_control());
              TokenAgent agent(thread.rank(), thread.size(), 50);
              thread.add_agent(agent);
              std::vector<double> x = {1};
              Event last;
              for (int i = 0; i < 5; ++i)
                last = thread.all_reduce(view_of(x), Reduce::sum, last, "x", 0);
              while (!agent.finished()) std::this_thread::yield();
              thread.remove_agent(agent);
              barrier(*thread.stop());
              EXPECT_EQ(x[0], 243.0);
            },
            {.max_delay_us = 100, .seed = 2});
}

TEST(CommAgent, MessagesAreOfferedInOrderUntilOneTakesThem) {
  CommThread thread(std::move(make_thread_group(1)[0]), with_control());
  std::vector<std::string> seen;
  std::atomic<int> taken{0};
  ProbeAgent first, second;
  first.on_message = [&](const Message& m) {
    seen.push_back("first");
    return m.kind == MessageKind::close && ++taken > 0;
  };
  second.on_message = [&](const Message&) {
    seen.push_back("second");
    return ++taken > 0;
  };
  int sends = 0;
  second.on_poll = [&](Communicator& control) {
    if (++sends == 1) control.send(0, {.kind = MessageKind::arrival});
    if (sends == 1) control.send(0, {.kind = MessageKind::close});
    return sends == 1;
  };
  thread.add_agent(first);
  thread.add_agent(second);
  while (taken < 2) std::this_thread::yield();
  thread.remove_agent(first);
  thread.remove_agent(second);
  EXPECT_EQ(seen, (std::vector<std::string>{"first", "second", "first"}));
}

TEST(CommAgent, AMessageThatNobodyTakesIsAnErrorUnlessAHeartbeat) {
  CommThread thread(std::move(make_thread_group(1)[0]), with_control());
  std::atomic<bool> send_close{false};
  ProbeAgent agent;
  int sent = 0;
  agent.on_poll = [&](Communicator& control) {
    if (sent++ == 0) control.send(0, {.kind = MessageKind::heartbeat});
    if (send_close) control.send(0, {.kind = MessageKind::close, .round = 12});
    return false;
  };
  thread.add_agent(agent);
  wait_for_polls(agent, 3);
  std::vector<float> x = {1};
  thread.all_gather(view_of(x), view_of(x), Event(), "x", 0).wait();
  send_close = true;
  std::string text = "no failure";
  while (text == "no failure")
    text = failure_of(thread.all_gather(view_of(x), view_of(x), Event(), "x", 0), Exit::internal);
  EXPECT_THAT(text, ::testing::HasSubstr("kind 3 from rank 0 for round 12"));
  thread.remove_agent(agent);
}

TEST(CommAgent, AThrowFailsWhatIsQueuedAndIsNotRepeated) {
  auto group = make_thread_group(2);  // the second rank never takes part
  CommThread thread(std::move(group[0]), with_control());
  std::vector<float> x = {1};
  std::atomic<bool> go{false};
  int throws = 0;
  ProbeAgent agent;
  agent.on_poll = [&](Communicator&) -> bool {
    if (!go) return false;
    ++throws;
    throw Error(Exit::communication, "planted");
  };
  thread.add_agent(agent);
  const Event under_way = thread.all_reduce(view_of(x), Reduce::sum, Event(), "x", 0);
  const auto never = std::make_shared<Timeline>();
  const Event queued = thread.all_reduce(view_of(x), Reduce::sum, Event(never, 1), "y", 0);
  go = true;
  EXPECT_EQ(failure_of(under_way, Exit::communication), "planted");
  EXPECT_EQ(failure_of(queued, Exit::communication), "planted");
  const Event later = thread.all_reduce(view_of(x), Reduce::sum, Event(), "z", 0);
  EXPECT_EQ(failure_of(later, Exit::communication), "planted");
  thread.remove_agent(agent);
  EXPECT_EQ(throws, 1);
}

TEST(CommAgent, AnEventThatIsPendingDoesNotHoldUpAgents) {
  run_ranks(2, [](auto comm) {
    CommThread thread(std::move(comm), with_control());
    ProbeAgent agent;
    thread.add_agent(agent);
    wait_for_polls(agent, 1);
    std::vector<float> x = {1};
    const auto cause = std::make_shared<Timeline>();
    const Event sum = thread.all_reduce(view_of(x), Reduce::sum, Event(cause, 1), "x", 0);
    wait_for_polls(agent, 20);
    EXPECT_FALSE(sum.done());
    cause->advance(1);
    sum.wait();
    EXPECT_EQ(x[0], 2.0f);
    thread.remove_agent(agent);
  });
}

TEST(CommAgent, AFailedEventStillFailsOnlyWhatFollows) {
  run_ranks(2, [](auto comm) {
    CommThread thread(std::move(comm), with_control());
    ProbeAgent agent;
    thread.add_agent(agent);
    std::vector<float> x = {1};
    const auto cause = std::make_shared<Timeline>();
    const Event first = thread.all_reduce(view_of(x), Reduce::sum, Event(), "x", 0);
    const Event second = thread.all_reduce(view_of(x), Reduce::sum, Event(cause, 1), "y", 0);
    cause->fail(std::make_exception_ptr(Error(Exit::numbers, "planted")));
    first.wait();
    EXPECT_EQ(failure_of(second, Exit::numbers), "planted");
    thread.remove_agent(agent);
  });
}

/// Rank 0 tells when; each rank starts its all-reduce from within the agent, many times over.
TEST(CommAgent, AgentsMayStartCollectives) {
  constexpr int kRounds = 100;
  run_ranks(3, [](auto comm) {
    CommThread thread(std::move(comm), with_control());
    std::vector<std::vector<std::int64_t>> x(kRounds, {thread.rank() + 1});
    std::vector<Event> events(kRounds);
    std::atomic<int> started{0};
    ProbeAgent agent;
    agent.on_poll = [&](Communicator& control) {
      // Its own last round must be over.
      if (control.rank() != 0 || started == kRounds) return false;
      if (started > 0 && !events[static_cast<std::size_t>(started) - 1].done()) return false;
      for (int r = 1; r < control.size(); ++r)
        control.send(r, {.kind = MessageKind::close, .round = started});
      const auto i = static_cast<std::size_t>(started);
      events[i] = thread.all_reduce(view_of(x[i]), Reduce::sum, Event(), "round", started);
      ++started;
      return true;
    };
    agent.on_message = [&](const Message& m) {
      EXPECT_EQ(m.round, started);
      const auto i = static_cast<std::size_t>(m.round);
      events[i] = thread.all_reduce(view_of(x[i]), Reduce::sum, Event(), "round", m.round);
      ++started;
      return true;
    };
    thread.add_agent(agent);
    while (started < kRounds) std::this_thread::yield();
    thread.remove_agent(agent);
    events.back().wait();
    for (const auto& sum : x) EXPECT_EQ(sum[0], 6);
  });
}

TEST(CommAgent, WakeEndsTheSleep) {
  CommThread thread(std::move(make_thread_group(1)[0]), with_control());
  std::atomic<int> asked{0};
  std::atomic<int> answered{0};
  ProbeAgent agent;
  agent.idle = kForEverUs;
  agent.on_poll = [&](Communicator&) {
    answered = asked.load();
    return false;
  };
  thread.add_agent(agent);
  // Sleeps double: without wake() the last of these would take years.
  for (int i = 1; i < 100; ++i) {
    asked = i;
    thread.wake();
    while (answered < i) std::this_thread::yield();
  }
  thread.remove_agent(agent);
}

TEST(CommAgent, IsNotInsideAfterItsRemovalAndWasPolledOnceMore) {
  CommThread thread(std::move(make_thread_group(1)[0]), with_control());
  for (int i = 0; i < 200; ++i) {
    auto agent = std::make_unique<ProbeAgent>();
    std::atomic<bool> inside{false};
    std::atomic<bool> last_words{false};
    bool said = false;
    agent->idle = i % 2 == 0 ? 1 : kForEverUs;
    agent->on_poll = [&](Communicator&) {
      inside = true;
      for (int k = 0; k < 20; ++k) std::this_thread::yield();
      said = last_words;
      inside = false;
      return false;
    };
    thread.add_agent(*agent);
    if (i % 3 > 0) wait_for_polls(*agent, i % 3);
    last_words = true;
    thread.remove_agent(*agent);
    EXPECT_FALSE(inside);
    EXPECT_TRUE(said || agent->polls == 0);
  }
}

TEST(CommAgent, MayBeLeftInWhenTheThreadStops) {
  run_ranks(2, [](auto comm) {
    CommThread thread(std::move(comm), with_control());
    ProbeAgent agent;
    thread.add_agent(agent);
    wait_for_polls(agent, 1);
    const auto back = thread.stop();
    thread.remove_agent(agent);  // returns, though nobody is there to let go
    barrier(*back);
  });
}

TEST(CommAgent, NeedsAControlCommunicator) {
  CommThread thread(std::move(make_thread_group(1)[0]), {});
  ProbeAgent agent;
  EXPECT_THROW(thread.add_agent(agent), Error);
}

}  // namespace
}  // namespace sidestep::testing
