#include "comm/thread_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "core/base/error.h"
#include "tests/comm/ranks.h"
#include "tests/harness/collective_checks.h"
#include "tests/harness/message_checks.h"

namespace sidestep::testing {
namespace {

/// What `call` fails with; an empty text if it does not fail with Exit::communication.
template <class F>
std::string communication_failure(F call) {
  try {
    call();
  } catch (const Error& e) {
    return e.code() == Exit::communication ? e.what() : "";
  }
  return "";
}

class ThreadGroup : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ThreadGroup, ::testing::Values(1, 2, 3, 4));

TEST_P(ThreadGroup, CollectivesOfEveryTypeAndSize) {
  run_ranks(GetParam(), [](auto comm) { check_collectives(*comm, {0, 1, 17, 30011}); });
}

TEST_P(ThreadGroup, SeveralInFlightWithLateResults) {
  run_ranks(GetParam(), [](auto comm) { check_many_in_flight(*comm); },
            {.max_delay_us = 300, .seed = 3});
}

TEST_P(ThreadGroup, BlockingHelpers) {
  run_ranks(GetParam(), [](auto comm) { check_blocking_helpers(*comm); });
}

TEST_P(ThreadGroup, Messages) {
  run_ranks(GetParam(), [](auto comm) { check_messages(*comm); });
}

TEST_P(ThreadGroup, LateMessages) {
  run_ranks(GetParam(), [](auto comm) { check_messages(*comm); }, {.max_delay_us = 50, .seed = 4});
}

TEST(ThreadGroupMessages, TooManyUnderWayIsAFailure) {
  run_ranks(2, [](auto comm) {
    if (comm->rank() == 0) {
      for (int i = 0; i < kMessagesInFlight; ++i) comm->send(i % 2, message_of(i));
      EXPECT_THAT(communication_failure([&] { comm->send(1, message_of(0)); }),
                  ::testing::HasSubstr("rank 0 has 1024 messages under way"));
      receive_one(*comm);
      comm->send(1, message_of(0));
    }
    barrier(*comm);
  });
}

TEST(ThreadGroupMessages, ThoseToARankThatHasLeftAreDropped) {
  auto group = make_thread_group(2);
  for (int i = 0; i < kMessagesInFlight; ++i) group[0]->send(1, message_of(i));
  group[1].reset();
  for (int i = 0; i < 2 * kMessagesInFlight; ++i) group[0]->send(1, message_of(i));
  group[0]->send(0, message_of(7));
  expect_message(receive_one(*group[0]), 0, 7);
}

TEST(ThreadGroupFailures, AbortReachesTheDuplicates) {
  auto group = make_thread_group(2);
  const auto control = group[0]->duplicate();
  group[1]->abort(5);
  EXPECT_THAT(communication_failure([&] { control->receive(); }),
              ::testing::HasSubstr("rank 1 ended the job"));
  EXPECT_NE(communication_failure([&] { control->send(0, {}); }), "");
}

TEST(ThreadGroupFailures, AbortFreesThePeers) {
  run_ranks(3, [](auto comm) {
    if (comm->rank() == 1) {
      comm->abort(6);
      return;
    }
    const std::string text = communication_failure([&] { barrier(*comm); });
    EXPECT_THAT(text, ::testing::HasSubstr("rank 1"));
  });
}

TEST(ThreadGroupFailures, ARankThatLeavesFreesThePeers) {
  run_ranks(3, [](auto comm) {
    barrier(*comm);
    if (comm->rank() == 2) return;
    const std::string text = communication_failure([&] { barrier(*comm); });
    EXPECT_THAT(text, ::testing::HasSubstr("rank 2 left"));
  });
}

TEST(ThreadGroupFailures, DifferentCollectivesAreNamedOnAllRanks) {
  run_ranks(2, [](auto comm) {
    std::vector<float> data(comm->rank() == 0 ? 4 : 5);
    const std::string text = communication_failure([&] {
      all_reduce(*comm, view_of(data), Reduce::sum);
      barrier(*comm);
    });
    EXPECT_THAT(text, ::testing::AllOf(::testing::HasSubstr("all_reduce of 4 float32"),
                                       ::testing::HasSubstr("all_reduce of 5 float32")));
  });
}

}  // namespace
}  // namespace sidestep::testing
