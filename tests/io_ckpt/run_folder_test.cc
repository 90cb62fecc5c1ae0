#include "io/run_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "io/checkpoint_folder.h"
#include "io/output_file.h"
#include "tests/io_ckpt/io_ckpt_util.h"

namespace sidestep::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Mode = RunFolder::Mode;

/// A folder as a run of 30 steps leaves it.
void leave_run(const std::filesystem::path& path) {
  const RunFolder folder(path, Mode::fresh);
  write_file_atomically(folder.config(), "batch = 64\n");
  write_file_atomically(folder.metrics(), "{\"step\":29}\n{\"step\":30}\n{\"step\":3");
  write_checkpoint(CheckpointFolder(folder.checkpoints()).file_of(20), sample_content());
}

TEST(RunFolder, FreshFolderIsMadeWithItsParents) {
  const ScratchFolder scratch;
  leave_run(scratch / "a/b/run");
  EXPECT_TRUE(std::filesystem::exists(scratch / "a/b/run/config.ini"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "a/b/run/.lock"));
}

TEST(RunFolder, StartThatFailedLeavesNothing) {
  const ScratchFolder scratch;
  { const RunFolder folder(scratch / "a/b/run", Mode::fresh); }
  EXPECT_THAT(scratch.names(), IsEmpty());
  {
    RunFolder folder(scratch / "run/", Mode::fresh);
    folder.discard_if_empty();
    EXPECT_THAT(scratch.names(), IsEmpty());
  }
  std::filesystem::create_directory(scratch / "mine");
  { const RunFolder folder(scratch / "mine", Mode::fresh); }
  EXPECT_THAT(scratch.names(), ElementsAre("mine"));
  EXPECT_TRUE(std::filesystem::is_empty(scratch / "mine"));
}

TEST(RunFolder, EarlierRunIsNotOverwritten) {
  const ScratchFolder scratch;
  leave_run(scratch / "run");
  expect_names(error_of(Exit::settings, [&] { RunFolder folder(scratch / "run", Mode::fresh); }),
               {"run", "started 20", "last step 30", "--resume latest", "--replace"});
  EXPECT_EQ(read_text_file(scratch / "run/config.ini"), "batch = 64\n");
  EXPECT_FALSE(std::filesystem::exists(scratch / "run/.lock"));
}

TEST(RunFolder, EachTraceOfARunCounts) {
  for (const std::string name : {"config.ini", "metrics.jsonl", "checkpoints/step-00000012.h5"}) {
    const ScratchFolder scratch;
    std::filesystem::create_directories(scratch / "checkpoints");
    spill(scratch / name, "x");
    error_of(Exit::settings, [&] { RunFolder folder(scratch.path(), Mode::fresh); });
  }
  const ScratchFolder scratch;
  spill(scratch / "notes.txt", "x");
  EXPECT_NO_THROW(RunFolder(scratch.path(), Mode::fresh));
  EXPECT_THAT(scratch.names(), ElementsAre("notes.txt"));
}

TEST(RunFolder, ReplaceRemovesOnlyTheRunsFiles) {
  const ScratchFolder scratch;
  leave_run(scratch / "run");
  spill(scratch / "run/notes.txt", "x");
  spill(scratch / "run/checkpoints/best.h5", "x");
  spill(scratch / "run/checkpoints/mine.h5", "x");
  {
    const RunFolder folder(scratch / "run", Mode::replace);
    EXPECT_EQ(read_text_file(folder.config()), "batch = 64\n");  // until the new run is certain
    folder.remove_earlier();
    EXPECT_FALSE(std::filesystem::exists(folder.config()));
    EXPECT_FALSE(std::filesystem::exists(folder.metrics()));
  }
  EXPECT_TRUE(std::filesystem::exists(scratch / "run/notes.txt"));
  EXPECT_TRUE(std::filesystem::exists(scratch / "run/checkpoints/mine.h5"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "run/checkpoints/best.h5"));
  EXPECT_THAT(CheckpointFolder(scratch / "run/checkpoints").list(), IsEmpty());
}

TEST(RunFolder, ResumeNeedsACheckpoint) {
  const ScratchFolder scratch;
  expect_names(
      error_of(Exit::checkpoint, [&] { RunFolder folder(scratch / "none", Mode::resume); }),
      {"none", "no run to resume"});
  EXPECT_THAT(scratch.names(), IsEmpty());
  leave_run(scratch / "run");
  EXPECT_NO_THROW(RunFolder(scratch / "run", Mode::resume));
  std::filesystem::remove(scratch / "run/checkpoints/step-00000020.h5");
  expect_names(error_of(Exit::checkpoint, [&] { RunFolder folder(scratch / "run", Mode::resume); }),
               {"no checkpoint", "last step 30"});
}

TEST(RunFolder, SecondJobIsRefused) {
  const ScratchFolder scratch;
  const RunFolder first(scratch / "run", Mode::fresh);
  for (const Mode mode : {Mode::fresh, Mode::replace, Mode::resume})
    expect_names(error_of(Exit::checkpoint, [&] { RunFolder folder(scratch / "run", mode); }),
                 {"in use", host_name(), fmt::format("pid {}", ::getpid())});
  EXPECT_TRUE(std::filesystem::exists(scratch / "run/.lock"));
}

TEST(RunFolder, LockFileOfAKilledJobIsNoObstacle) {
  const ScratchFolder scratch;
  std::filesystem::create_directory(scratch / "run");
  spill(scratch / "run/.lock", "host a-host-with-a-long-name, pid 1234567\n");
  const RunFolder folder(scratch / "run", Mode::fresh);
  EXPECT_EQ(read_text_file(scratch / "run/.lock"),
            fmt::format("host {}, pid {}\n", host_name(), ::getpid()));
}

TEST(RunFolder, WrongKindAndNotCreatable) {
  const ScratchFolder scratch;
  spill(scratch / "file", "x");
  expect_names(error_of(Exit::settings, [&] { RunFolder folder(scratch / "file", Mode::fresh); }),
               {"expected a folder, found a file"});
  expect_names(
      error_of(Exit::checkpoint, [&] { RunFolder folder(scratch / "file/run", Mode::fresh); }),
      {"file/run", "Not a directory"});
  EXPECT_THAT(scratch.names(), ElementsAre("file"));
}

}  // namespace
}  // namespace sidestep::testing
