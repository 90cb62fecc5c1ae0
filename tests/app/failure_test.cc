#include "app/failure.h"

#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <new>

#include "tests/app/run_ranks.h"

namespace sidestep {
namespace {

using testing::HasSubstr;

std::exception_ptr thrown(const std::function<void()>& action) {
  try {
    action();
  } catch (...) {
    return std::current_exception();
  }
  return {};
}

TEST(Failure, RankLists) {
  EXPECT_EQ(rank_list({3}), "rank 3");
  EXPECT_EQ(rank_list({0, 1, 2, 5}), "ranks 0-2,5");
}

TEST(Failure, AllRanksThrowWhatOneMet) {
  std::array<std::string, 3> messages;
  run_ranks(3, [&](Communicator& comm) {
    try {
      together(comm, [&] {
        if (comm.rank() == 1) fail(Exit::data, "x.h5: truncated");
      });
    } catch (const AgreedError& error) {
      EXPECT_EQ(error.code(), Exit::data);
      messages[static_cast<std::size_t>(comm.rank())] = error.what();
    }
  });
  for (const std::string& message : messages) EXPECT_EQ(message, "rank 1: x.h5: truncated");
}

TEST(Failure, WhatAllMeetIsSaidOnce) {
  std::atomic<int> right{0};
  run_ranks(3, [&](Communicator& comm) {
    try {
      together(comm, [] { fail(Exit::settings, "--lr: wrong"); });
    } catch (const AgreedError& error) {
      if (error.what() == std::string("--lr: wrong") && error.code() == Exit::settings) ++right;
    }
  });
  EXPECT_EQ(right, 3);
}

TEST(Failure, TheLowestFailingRankGivesTheCode) {
  run_ranks(3, [](Communicator& comm) {
    try {
      together(comm, [&] {
        if (comm.rank() == 1) fail(Exit::device, "no GPU");
        if (comm.rank() == 2) fail(Exit::data, "no file");
      });
      ADD_FAILURE();
    } catch (const AgreedError& error) {
      EXPECT_EQ(error.code(), Exit::device);
      EXPECT_STREQ(error.what(), "rank 1: no GPU\nrank 2: no file");
    }
  });
}

TEST(Failure, NoFailureNoThrow) {
  std::atomic<int> done{0};
  run_ranks(2, [&](Communicator& comm) { together(comm, [&] { ++done; }); });
  EXPECT_EQ(done, 2);
}

TEST(Failure, DescribesEveryKind) {
  const auto own = describe(thrown([] { fail(Exit::numbers, "loss is not finite"); }));
  EXPECT_EQ(own.code, 6);
  EXPECT_EQ(own.line, "loss is not finite");
  EXPECT_FALSE(own.agreed);
  EXPECT_TRUE(describe(thrown([] { throw AgreedError(Exit::data, "x"); })).agreed);
  EXPECT_EQ(describe(thrown([] { throw std::bad_alloc(); })).code, 7);
  for (const auto& failure :
       {thrown([] { check(false, "size"); }), thrown([] { throw std::runtime_error("odd"); }),
        thrown([] { throw 3; })}) {
    EXPECT_EQ(describe(failure).code, 1);
    EXPECT_THAT(describe(failure).line, HasSubstr("please report it"));
  }
}

TEST(Failure, OnlyAFailureOfOneRankOfSeveralAborts) {
  int aborted_with = 0;
  const auto abort = [&](int code) { aborted_with = code; };
  testing::internal::CaptureStderr();
  EXPECT_EQ(end_job(thrown([] { throw AgreedError(Exit::data, "all know"); }), 1, 4, abort), 3);
  EXPECT_EQ(aborted_with, 0);
  EXPECT_EQ(end_job(thrown([] { fail(Exit::data, "alone"); }), 0, 1, abort), 3);
  EXPECT_EQ(aborted_with, 0);
  end_job(thrown([] { fail(Exit::numbers, "mine"); }), 2, 4, abort);
  EXPECT_EQ(aborted_with, 6);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(said.find("all know"), std::string::npos) << "rank 0 says what all know";
  EXPECT_THAT(said, HasSubstr("error: alone\n"));
  EXPECT_THAT(said, HasSubstr("mine\n"));
}

}  // namespace
}  // namespace sidestep
