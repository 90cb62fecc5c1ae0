#include "io/rank_marks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/io/files.h"

namespace sidestep::test {
namespace {

TEST(RankMarks, NameTheRankThatStoppedWithoutAWord) {
  const TempFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    RankMark mark(folder.str(), 2, "node7");
    mark.set(57, "compute");
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  RankMark other(folder.str(), 0, "node1");
  other.set(58, "exchange");
  *other.ended() = 1;
  const auto text = read_marks(folder.str());
  ASSERT_TRUE(text.has_value());
  EXPECT_EQ(*text, "rank 2 on node7 stopped in step 57 (compute); the others had reached step 58");
}

TEST(RankMarks, SayNothingOfRanksThatWereAskedToEnd) {
  const TempFolder folder;
  for (int rank = 0; rank < 3; ++rank) *RankMark(folder.str(), rank, "here").ended() = 1;
  EXPECT_FALSE(read_marks(folder.str()).has_value());
}

TEST(RankMarks, NamesFourRanksAtMost) {
  const TempFolder folder;
  for (int rank = 0; rank < 7; ++rank) RankMark(folder.str(), rank, "here").set(3, "input");
  EXPECT_THAT(*read_marks(folder.str()), ::testing::EndsWith("and 3 more"));
}

TEST(RankMarks, DoWithoutAFolder) {
  RankMark mark("/nowhere/at/all", 0, "here");
  mark.set(3, "compute");
  EXPECT_EQ(mark.ended(), nullptr);
  EXPECT_FALSE(read_marks("/nowhere/at/all").has_value());
}

TEST(RankMarks, LeaveOtherFilesAlone) {
  const TempFolder folder;
  write_bytes(folder / "rank-0", "something else, longer than a mark is, and certainly without its first bytes; "
                                 "something else, longer than a mark is, and certainly without its first bytes");
  EXPECT_FALSE(read_marks(folder.str()).has_value());
}

}  // namespace
}  // namespace sidestep::test
