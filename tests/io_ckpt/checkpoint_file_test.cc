#include "io/checkpoint_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <sys/file.h>
#include <sys/resource.h>

#include <array>
#include <csignal>
#include <cstdlib>

#include "core/base/rng.h"
#include "tests/io_ckpt/io_ckpt_util.h"

namespace sidestep::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Changes a published file as h5py does: opened for writing, changed, closed.
template <class F>
void edit(const std::filesystem::path& path, F&& change) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  change(file);
  ASSERT_GE(H5Fclose(file), 0);
}

void set_number(hid_t file, const char* name, std::int64_t value) {
  const hid_t attribute = H5Aopen(file, name, H5P_DEFAULT);
  ASSERT_GE(attribute, 0);
  EXPECT_GE(H5Awrite(attribute, H5T_NATIVE_INT64, &value), 0);
  H5Aclose(attribute);
}

TEST(CheckpointFile, ReadsBackWhatWasWritten) {
  const ScratchFolder folder;
  const auto content = sample_content();
  write_checkpoint(folder / "a.h5", content);
  expect_equal(read_checkpoint(folder / "a.h5"), content);
  EXPECT_THAT(folder.names(), ElementsAre("a.h5"));
}

TEST(CheckpointFile, EmptyContentIsAFileToo) {
  const ScratchFolder folder;
  write_checkpoint(folder / "a.h5", {});
  expect_equal(read_checkpoint(folder / "a.h5"), {});
}

TEST(CheckpointFile, RootTakesAttributes) {
  const ScratchFolder folder;
  CheckpointContent content;
  content.attributes["/"] = {{"made_by", std::string("x")}};
  write_checkpoint(folder / "a.h5", content);
  expect_equal(read_checkpoint(folder / "a.h5"), content);
}

TEST(CheckpointFile, EqualContentGivesEqualFiles) {
  const ScratchFolder folder;
  write_checkpoint(folder / "a.h5", sample_content());
  write_checkpoint(folder / "b.h5", sample_content());
  write_checkpoint(folder / "c.h5", sample_content(8));
  EXPECT_EQ(slurp(folder / "a.h5"), slurp(folder / "b.h5"));
  EXPECT_NE(slurp(folder / "a.h5"), slurp(folder / "c.h5"));
}

TEST(CheckpointFile, ManyDatasetsAndALongConfig) {
  const ScratchFolder folder;
  CheckpointContent content;
  for (int i = 0; i < 300; ++i)
    content.tensors.push_back(make_tensor<float>(fmt::format("/model/params/p{:03}", i), {2},
                                                 {static_cast<float>(i), 1}));
  for (int i = 0; i < 40; ++i)
    content.attributes["/run"][fmt::format("option{:02}", i)] = std::string(3000, 'x');
  content.attributes["/run"]["config"] = std::string(200000, 'y');
  write_checkpoint(folder / "a.h5", content);
  expect_equal(read_checkpoint(folder / "a.h5"), content);
}

TEST(CheckpointFile, FindsByName) {
  const auto content = sample_content();
  ASSERT_NE(content.find("/data/seen"), nullptr);
  EXPECT_EQ(content.find("/data/seen")->dtype, DType::u8);
  EXPECT_EQ(content.find("/data/none"), nullptr);
  EXPECT_EQ(content.attribute("/run", "step"), AttrValue(std::int64_t{7}));
  EXPECT_EQ(content.attribute("/run", "none"), std::nullopt);
  EXPECT_EQ(content.attribute("/none", "step"), std::nullopt);
}

TEST(CheckpointFile, OutlineHasEverythingButTheData) {
  const ScratchFolder folder;
  auto content = sample_content();
  write_checkpoint(folder / "a.h5", content);
  for (auto& tensor : content.tensors) tensor.bytes.clear();
  expect_equal(read_checkpoint_outline(folder / "a.h5"), content);
}

TEST(CheckpointFile, ReservedNamesAndWrongSizesAreOurOwnErrors) {
  const ScratchFolder folder;
  CheckpointContent reserved, size;
  reserved.attributes["/run"] = {{"digest", std::string("x")}};
  size.tensors = {make_tensor<float>("/a", {3}, {1, 2})};
  error_of(Exit::internal, [&] { write_checkpoint(folder / "a.h5", reserved); });
  error_of(Exit::internal, [&] { write_checkpoint(folder / "a.h5", size); });
  EXPECT_THAT(folder.names(), IsEmpty());
}

TEST(CheckpointFile, H5pyReadsItAndFindsTheDigests) {
  std::string python;
  for (const char* candidate : {"python3", "/usr/bin/python3"})
    if (python.empty() &&
        std::system(fmt::format("{} -c 'import h5py' 2>/dev/null", candidate).c_str()) == 0)
      python = candidate;
  if (python.empty()) GTEST_SKIP() << "no python3 with h5py";
  const ScratchFolder folder;
  write_checkpoint(folder / "a.h5", sample_content());
  spill(folder / "read.py", R"(
import sys, h5py, numpy
M = (1 << 64) - 1
def hash64(data, h=0xcbf29ce484222325):
    for b in data:
        h = ((h ^ b) * 0x100000001b3) & M
    h ^= h >> 33
    h = h * 0xff51afd7ed558ccd & M
    return h ^ h >> 33
with h5py.File(sys.argv[1], 'r') as f:
    assert f.attrs['complete'] == 1 and f.attrs['format'] == 1
    assert f['run'].attrs['step'] == 7 and f['run'].attrs['lr'] == 0.1
    assert f['run'].attrs['config'] == 'batch = 64\nname = \u00fc\n'
    assert f['run'].attrs['empty'] == ''
    w = f['model/params/conv1.weight']
    assert w.shape == (50, 100) and w.dtype == numpy.float32 and w[0, 4] == 8
    assert f['optimizer/count'][()] == 0.1
    assert f['sync/rank/0/empty'].shape == (0, 4)
    assert list(f['data/order']) == [3, 1, 2, 1 << 40]
    b = f['model/params/conv1.bias']
    assert b.attrs['digest'] == '%016x' % hash64(b'float32 [2, 3]', hash64(b[()].tobytes()))
)");
  EXPECT_EQ(std::system(fmt::format("{} '{}' '{}'", python, (folder / "read.py").string(),
                                    (folder / "a.h5").string())
                            .c_str()),
            0);
}

TEST(CheckpointFile, H5dumpReadsIt) {
  if (std::system("h5dump --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "no h5dump";
  const ScratchFolder folder;
  write_checkpoint(folder / "a.h5", sample_content());
  EXPECT_EQ(std::system(fmt::format("h5dump '{}' >/dev/null", (folder / "a.h5").string()).c_str()),
            0);
}

TEST(CheckpointFile, DatasetsMayBeRemovedByAnotherProgram) {
  const ScratchFolder folder;
  auto content = sample_content();
  write_checkpoint(folder / "a.h5", content);
  edit(folder / "a.h5",
       [](hid_t file) { ASSERT_GE(H5Ldelete(file, "/model/params/conv1.bias", H5P_DEFAULT), 0); });
  std::erase_if(content.tensors,
                [](const auto& t) { return t.path == "/model/params/conv1.bias"; });
  expect_equal(read_checkpoint(folder / "a.h5"), content);
}

TEST(CheckpointFile, ChangedValuesAreFoundByTheDatasetsDigest) {
  const ScratchFolder folder;
  write_checkpoint(folder / "a.h5", sample_content());
  edit(folder / "a.h5", [](hid_t file) {
    const hid_t dataset = H5Dopen2(file, "/model/params/conv1.bias", H5P_DEFAULT);
    const std::array<float, 6> values{1, 2, 3, 4, 5, 6};
    EXPECT_GE(H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
    H5Dclose(dataset);
  });
  expect_names(error_of(Exit::checkpoint, [&] { read_checkpoint(folder / "a.h5"); }),
               {"a.h5", "dataset /model/params/conv1.bias", "digest", "expected"});
}

TEST(CheckpointFile, ChangedAttributesAreFoundByTheGroupsDigest) {
  const ScratchFolder folder;
  write_checkpoint(folder / "a.h5", sample_content());
  edit(folder / "a.h5", [](hid_t file) {
    const hid_t group = H5Gopen2(file, "/data", H5P_DEFAULT);
    set_number(group, "epoch", 4);
    H5Gclose(group);
  });
  expect_names(error_of(Exit::checkpoint, [&] { read_checkpoint(folder / "a.h5"); }),
               {"a.h5", "attributes of /data", "digest"});
}

TEST(CheckpointFile, NewerFormatNamesBothVersions) {
  const ScratchFolder folder;
  write_checkpoint(folder / "a.h5", sample_content());
  edit(folder / "a.h5", [](hid_t file) { set_number(file, "format", kCheckpointFormat + 1); });
  for (const auto read : {read_checkpoint, read_checkpoint_outline})
    expect_names(error_of(Exit::checkpoint, [&] { read(folder / "a.h5"); }),
                 {"a.h5", fmt::format("format {}", kCheckpointFormat + 1),
                  fmt::format("up to {}", kCheckpointFormat)});
}

TEST(CheckpointFile, MissingMarkIsIncomplete) {
  const ScratchFolder folder;
  write_checkpoint(folder / "a.h5", sample_content());
  edit(folder / "a.h5", [](hid_t file) { ASSERT_GE(H5Adelete(file, "complete"), 0); });
  expect_names(error_of(Exit::checkpoint, [&] { read_checkpoint(folder / "a.h5"); }),
               {"a.h5", "incomplete", "complete"});
}

TEST(CheckpointFile, WrongKindsOfFiles) {
  const ScratchFolder folder;
  spill(folder / "empty.h5", "");
  spill(folder / "text.h5", std::string(1000, 'x'));
  const auto message = [&](const std::string& name) {
    return error_of(Exit::checkpoint, [&] { read_checkpoint(folder / name); });
  };
  expect_names(message("none.h5"), {"none.h5", "No such file"});
  expect_names(message("empty.h5"), {"empty.h5", "empty"});
  expect_names(message("text.h5"), {"text.h5", "not an HDF5 file"});
  expect_names(error_of(Exit::checkpoint, [&] { read_checkpoint(folder.path()); }), {"folder"});
}

TEST(CheckpointFile, LockedFileNamesTheVariable) {
  const ScratchFolder folder;
  write_checkpoint(folder / "a.h5", sample_content());
  const int fd = ::open((folder / "a.h5").c_str(), O_RDWR);
  ASSERT_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0);
  expect_names(error_of(Exit::checkpoint, [&] { read_checkpoint(folder / "a.h5"); }),
               {"a.h5", "locked", "HDF5_USE_FILE_LOCKING=FALSE"});
  ::close(fd);
  EXPECT_NO_THROW(read_checkpoint(folder / "a.h5"));
}

/// A limit on the size of files makes writes fail as a full disk does.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(CheckpointFile, FailedWriteLeavesTheOlderFileAndTheNextSaveWorks) {
  const ScratchFolder folder;
  write_checkpoint(folder / "a.h5", sample_content(1));
  for (const rlim_t limit : {0, 100, 5000, 20000}) {
    const FileSizeLimit limited(limit);
    expect_names(
        error_of(Exit::checkpoint, [&] { write_checkpoint(folder / "a.h5", sample_content(2)); }),
        {"a.h5", "File too large", "bytes needed", "bytes free"});
    EXPECT_THAT(folder.names(), ElementsAre("a.h5"));
    expect_equal(read_checkpoint(folder / "a.h5"), sample_content(1));
  }
  write_checkpoint(folder / "a.h5", sample_content(2));
  expect_equal(read_checkpoint(folder / "a.h5"), sample_content(2));
}

TEST(CheckpointFile, VersionsOfTheLibrary) {
  EXPECT_EQ(hdf5_compiled_version(), hdf5_loaded_version());
  EXPECT_NO_THROW(check_hdf5_version());
}

}  // namespace
}  // namespace sidestep::testing
