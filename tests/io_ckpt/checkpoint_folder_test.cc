#include "io/checkpoint_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "io/output_file.h"
#include "tests/io_ckpt/io_ckpt_util.h"

namespace sidestep::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

void touch(const std::filesystem::path& path) { spill(path, "x"); }

std::vector<std::string> names_of(const std::vector<std::filesystem::path>& files) {
  std::vector<std::string> names;
  for (const auto& file : files) names.push_back(file.filename().string());
  return names;
}

TEST(CheckpointFolder, NamesAndOrder) {
  const ScratchFolder scratch;
  const CheckpointFolder folder(scratch.path());
  EXPECT_EQ(folder.file_of(42).filename(), "step-00000042.h5");
  EXPECT_EQ(step_of_checkpoint(folder.file_of(123456789012)), 123456789012);
  for (const char* name : {"best.h5", "step-.h5", "step-1x.h5", "step--1.h5", "step-1.h5.part",
                           "step-99999999999999999999.h5"})
    EXPECT_EQ(step_of_checkpoint(name), std::nullopt) << name;
  for (const std::int64_t step : {9, 100, 123456789}) touch(folder.file_of(step));
  for (const char* name : {"best.h5", "notes.txt", ".step-00000200.h5.tmp-host-1"})
    touch(scratch / name);
  EXPECT_THAT(names_of(folder.list()),
              ElementsAre("step-123456789.h5", "step-00000100.h5", "step-00000009.h5"));
}

TEST(CheckpointFolder, AFolderThatIsNotThereIsEmpty) {
  const ScratchFolder scratch;
  EXPECT_THAT(CheckpointFolder(scratch / "none").list(), IsEmpty());
}

TEST(CheckpointFolder, LatestSkipsDamagedFilesWithALineEach) {
  const ScratchFolder scratch;
  const CheckpointFolder folder(scratch.path());
  for (const std::int64_t step : {10, 20, 30})
    write_checkpoint(folder.file_of(step), sample_content(step));
  std::string text = slurp(folder.file_of(30));
  text[text.size() / 2] ^= 1;
  spill(folder.file_of(30), text);
  spill(folder.file_of(40), "");
  std::vector<std::string> warnings;
  const auto [file, content] =
      folder.latest([&](const std::string& line) { warnings.push_back(line); });
  EXPECT_EQ(file, folder.file_of(20));
  expect_equal(content, sample_content(20));
  ASSERT_THAT(warnings, SizeIs(2));
  expect_names(warnings[0], {"step-00000040.h5", "empty"});
  expect_names(warnings[1], {"step-00000030.h5", "damaged"});
}

TEST(CheckpointFolder, LaterFilesAreSetAsideAndNeverOverOthers) {
  const ScratchFolder scratch;
  const CheckpointFolder folder(scratch.path());
  for (int line = 0; line < 2; ++line) {
    for (const std::int64_t step : {10, 20, 30}) spill(folder.file_of(step), std::to_string(line));
    EXPECT_THAT(folder.set_aside_after(10), SizeIs(2));
    EXPECT_THAT(names_of(folder.list()), ElementsAre("step-00000010.h5"));
  }
  EXPECT_EQ(slurp(scratch / "set-aside-step-00000030.h5"), "0");
  EXPECT_EQ(slurp(scratch / "set-aside-2-step-00000030.h5"), "1");
  EXPECT_THAT(folder.set_aside_after(10), IsEmpty());
}

TEST(CheckpointFolder, NothingUsableSaysWhatWasThere) {
  const ScratchFolder scratch;
  const CheckpointFolder folder(scratch.path());
  const auto ignore = [](const std::string&) {};
  expect_names(error_of(Exit::checkpoint, [&] { folder.latest(ignore); }),
               {scratch.path().string(), "found: nothing"});
  spill(folder.file_of(3), "x");
  touch(scratch / "best.h5");
  expect_names(error_of(Exit::checkpoint, [&] { folder.latest(ignore); }),
               {"1 of 2", "best.h5, step-00000003.h5"});
}

TEST(CheckpointFolder, PruneKeepsTheNewestAndOtherFiles) {
  const ScratchFolder scratch;
  const CheckpointFolder folder(scratch.path());
  for (const std::int64_t step : {1, 2, 3, 4}) touch(folder.file_of(step));
  touch(scratch / "best.h5");
  folder.prune(0);
  EXPECT_THAT(folder.list(), SizeIs(4));
  folder.prune(2);
  EXPECT_THAT(scratch.names(), ElementsAre("best.h5", "step-00000003.h5", "step-00000004.h5"));
}

TEST(CheckpointFolder, LeftoversOfEndedProcessesAreRemoved) {
  const ScratchFolder scratch;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(0);
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  const auto name = [](const std::string& host, std::int64_t pid) {
    return fmt::format(".step-00000001.h5.tmp-{}-{}", host, pid);
  };
  const std::string of_zombie = name(host_name(), child), of_us = name(host_name(), ::getpid());
  const std::string elsewhere = name("other-host-1", child), old = name("other-host-2", 1);
  for (const auto& file : {of_zombie, of_us, elsewhere, old, std::string("step-00000001.h5")})
    touch(scratch / file);
  std::filesystem::last_write_time(
      scratch / old, std::filesystem::file_time_type::clock::now() - std::chrono::hours(25));
  CheckpointFolder(scratch.path()).remove_leftovers();
  ::waitpid(child, nullptr, 0);
  std::vector<std::string> left = {of_us, elsewhere, "step-00000001.h5"};
  std::ranges::sort(left);
  EXPECT_EQ(scratch.names(), left);
}

}  // namespace
}  // namespace sidestep::testing
