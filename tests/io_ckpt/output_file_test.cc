#include "io/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/io_ckpt/io_ckpt_util.h"

namespace sidestep::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(OutputFile, WritesReplacesAndReads) {
  const ScratchFolder folder;
  write_file_atomically(folder / "a.txt", "one");
  write_file_atomically(folder / "a.txt", "two\n");
  EXPECT_EQ(read_text_file(folder / "a.txt"), "two\n");
  EXPECT_THAT(folder.names(), ElementsAre("a.txt"));
  expect_names(error_of(Exit::checkpoint, [&] { read_text_file(folder / "b.txt"); }),
               {"b.txt", "No such file"});
}

TEST(OutputFile, UnpublishedFileLeavesNothing) {
  const ScratchFolder folder;
  write_file_atomically(folder / "a.txt", "one");
  {
    AtomicFile file(folder / "a.txt");
    file.write("two");
    EXPECT_EQ(folder.names().size(), 2u);
    EXPECT_EQ(read_text_file(folder / "a.txt"), "one");
  }
  EXPECT_THAT(folder.names(), ElementsAre("a.txt"));
  EXPECT_EQ(read_text_file(folder / "a.txt"), "one");
}

TEST(OutputFile, FullDiskIsFoundBeforeWriting) {
  const ScratchFolder folder;
  expect_names(
      error_of(Exit::checkpoint, [&] { AtomicFile file(folder / "a.h5", std::uint64_t{1} << 60); }),
      {"a.h5", "No space left", "1152921504606846976 bytes needed", "bytes free"});
  EXPECT_THAT(folder.names(), IsEmpty());
}

TEST(OutputFile, MissingFolderAndFolderInTheWay) {
  const ScratchFolder folder;
  expect_names(error_of(Exit::checkpoint, [&] { write_file_atomically(folder / "no/a.txt", "x"); }),
               {"no/a.txt", "No such file"});
  std::filesystem::create_directory(folder / "d");
  error_of(Exit::checkpoint, [&] { write_file_atomically(folder / "d", "x"); });
  EXPECT_THAT(folder.names(), ElementsAre("d"));
}

TEST(OutputFile, PathsOfOptionsAreTested) {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder / "d");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_NO_THROW(check_output_path(folder / "t.json", "--trace"));
  write_file_atomically(folder / "old.json", "x");
  EXPECT_NO_THROW(check_output_path(folder / "old.json", "--trace"));
  EXPECT_EQ(read_text_file(folder / "old.json"), "x");
  const auto message = [&](Exit code, const std::string& name) {
    return error_of(code, [&] { check_output_path(folder / name, "--trace"); });
  };
  expect_names(message(Exit::settings, "d"), {"--trace", "a folder"});
  expect_names(message(Exit::settings, "d/"), {"--trace", "a folder"});
  expect_names(message(Exit::settings, "new/"), {"--trace", "slash"});
  expect_names(message(Exit::settings, "pipe"), {"--trace", "pipe"});
  expect_names(message(Exit::checkpoint, "no/t.json"), {"--trace", "no/t.json", "No such file"});
  expect_names(error_of(Exit::settings, [] { check_output_path("", "--trace"); }), {"--trace"});
  EXPECT_THAT(folder.names(), ElementsAre("d", "old.json", "pipe"));
}

TEST(OutputFile, OnlyRegularFilesAreRead) {
  const ScratchFolder scratch;
  spill(scratch / "file", "x");
  check_readable_file(scratch / "file", Exit::data);
  ASSERT_EQ(mkfifo((scratch / "pipe").c_str(), 0600), 0);
  const std::pair<const char*, const char*> wrong[] = {
      {"none", "No such file"}, {"", "a folder"}, {"pipe", "no regular file"}};
  for (const auto& [name, found] : wrong) {
    try {
      check_readable_file(scratch / name, Exit::data);
      ADD_FAILURE() << name << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::data);
      EXPECT_NE(std::string(error.what()).find(found), std::string::npos) << error.what();
    }
  }
}

TEST(OutputFile, OwnersOfTemporaries) {
  const auto owner = temporary_owner(".a.h5.tmp-node-12-345");
  ASSERT_TRUE(owner);
  EXPECT_EQ(owner->host, "node-12");
  EXPECT_EQ(owner->pid, 345);
  for (const char* name :
       {"a.h5", ".a.h5", "a.h5.tmp-h-1", ".a.tmp-h", ".a.tmp-h-x", ".a.tmp-h-1x"})
    EXPECT_FALSE(temporary_owner(name)) << name;
  EXPECT_TRUE(process_runs(::getpid()));
  EXPECT_FALSE(process_runs(0));
}

}  // namespace
}  // namespace sidestep::testing
