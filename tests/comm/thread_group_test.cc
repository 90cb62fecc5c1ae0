#include "comm/thread_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "core/base/error.h"
#include "tests/comm/ranks.h"
#include "tests/harness/collective_checks.h"

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
