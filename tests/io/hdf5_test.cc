#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <numeric>

#include "io/hdf5_dataset.h"
#include "io/hdf5_handles.h"
#include "tests/io/files.h"

namespace sidestep {
namespace {

using test::error_of;
using test::Hdf5Content;
using test::read_back;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Ids = std::vector<std::int64_t>;

std::uint8_t byte_of(std::size_t i) { return static_cast<std::uint8_t>(i * 37 + i / 11); }

/// `samples` of 2x3 as bytes, or scaled to 0..1; labels 0, 1, 2, 0, ...
Hdf5Content content(hsize_t samples, hid_t x_type, bool scaled, std::size_t first = 0) {
  Hdf5Content c;
  c.extent = {samples, 2, 3};
  c.x_type = x_type;
  for (std::size_t i = 0; i < 6 * samples; ++i)
    c.x.push_back(byte_of(6 * first + i) / (scaled ? 255.0 : 1.0));
  c.y_type = H5T_STD_U8LE;
  for (hsize_t i = 0; i < samples; ++i) c.y.push_back(static_cast<std::int64_t>((first + i) % 3));
  return c;
}

class Hdf5 : public ::testing::Test {
 protected:
  /// Content is made on the storage thread, which HDF5's type constants belong to as well.
  template <class Make>
  void put(const std::string& name, Make make) {
    storage_.read_now([&] { test::write_hdf5(folder_ / name, make()); });
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  DataPair open(const std::string& files, std::optional<std::int64_t> classes = std::nullopt,
                std::size_t memory_limit = kHdf5MemoryLimit) {
    return open_hdf5_data(parse_hdf5(files), classes, storage_, memory_limit);
  }
  std::string fault(const std::string& files) {
    return error_of(Exit::data, [&] { open(files); });
  }
  StorageThread storage_;
  test::TempFolder folder_;
};

Ids counted(std::int64_t n) {
  Ids ids(static_cast<std::size_t>(n));
  std::iota(ids.begin(), ids.end(), std::int64_t{0});
  return ids;
}

TEST_F(Hdf5, SamePicturesSameNumbersInEveryContainer) {
  put("u8", [] { return content(20, H5T_STD_U8LE, false); });
  put("f32", [] { return content(20, H5T_IEEE_F32LE, true); });
  put("f32be", [] { return content(20, H5T_IEEE_F32BE, true); });
  put("f64", [] { return content(20, H5T_IEEE_F64BE, true); });
  std::vector<std::uint8_t> bytes, labels;
  for (std::size_t i = 0; i < 120; ++i) bytes.push_back(byte_of(i));
  for (std::size_t i = 0; i < 20; ++i) labels.push_back(static_cast<std::uint8_t>(i % 3));
  test::write_bytes(folder_ / "train-images-idx3-ubyte", test::idx_text({20, 2, 3}, bytes));
  test::write_bytes(folder_ / "train-labels-idx1-ubyte", test::idx_text({20}, labels));
  const DataPair idx = open_data("idx:" + folder_.str(), 1, storage_);
  const auto expected = read_back(*idx.train, counted(20));
  EXPECT_NE(expected.x[0], expected.x[1]);
  for (const char* name : {"u8", "f32", "f32be", "f64"}) {
    const DataPair data = open_data("hdf5:" + path(name), 1, storage_);
    const auto got = read_back(*data.train, counted(20));
    EXPECT_EQ(got.x, expected.x) << name;
    EXPECT_EQ(got.y, expected.y) << name;
    EXPECT_EQ(data.train->digest(), idx.train->digest()) << name;
    const DataPair streamed = open(path(name), std::nullopt, 1);
    EXPECT_THAT(streamed.train->description(), HasSubstr("read on demand"));
    EXPECT_EQ(read_back(*streamed.train, counted(20)).x, expected.x) << name;
  }
  EXPECT_THAT(open(path("u8")).train->description(),
              AllOf(HasSubstr("20 samples of 2x3x1, 3 classes"), HasSubstr("scaled by 1/255")));
}

TEST_F(Hdf5, ShardsAreOneSetInMemoryAndStreamed) {
  put("all", [] { return content(12, H5T_STD_U8LE, false); });
  put("a", [] { return content(5, H5T_STD_U8LE, false); });
  put("b", [] {
    Hdf5Content c = content(7, H5T_STD_U8LE, false, 5);
    c.chunk_rows = 3;
    return c;
  });
  const DataPair whole = open(path("all"));
  const DataPair memory = open(path("a") + "," + path("b"));
  const DataPair stream = open(path("a") + "," + path("b"), std::nullopt, 1);
  const Ids mixed{11, 4, 5, 0, 6, 4, 10, 7};
  for (const Ids& ids : {counted(12), mixed, Ids{}}) {
    const auto expected = read_back(*whole.train, ids);
    for (const DataPair* shards : {&memory, &stream}) {
      const auto got = read_back(*shards->train, ids);
      EXPECT_EQ(got.x, expected.x);
      EXPECT_EQ(got.y, expected.y);
    }
  }
  EXPECT_EQ(memory.train->digest(), stream.train->digest());
  EXPECT_THAT(memory.train->description(), HasSubstr("and 1 more files"));
  error_of(Exit::internal, [&] { read_back(*stream.train, {12}); });
  error_of(Exit::internal, [&] { read_back(*memory.train, {-1}); });
}

TEST_F(Hdf5, ExtentsOfOneToThreeSampleDimensions) {
  put("flat", [] {
    Hdf5Content c = content(4, H5T_STD_U8LE, false);
    c.extent = {4, 6};
    return c;
  });
  put("colour", [] {
    Hdf5Content c = content(4, H5T_STD_U8LE, false);
    c.extent = {4, 1, 2, 3};
    return c;
  });
  EXPECT_EQ(open(path("flat")).train->sample_shape(), (Shape{1, 6, 1}));
  EXPECT_EQ(open(path("colour")).train->sample_shape(), (Shape{1, 2, 3}));
  put("scalar", [] {
    Hdf5Content c = content(4, H5T_STD_U8LE, false);
    c.extent = {24};
    return c;
  });
  EXPECT_THAT(fault(path("scalar")),
              AllOf(HasSubstr("[n, f], found [24]"), HasSubstr("dataset x")));
}

TEST_F(Hdf5, OtherTypesAreRefusedByName) {
  struct Case {
    const char* name;
    std::function<hid_t()> type;
  };
  const Case cases[] = {{"found int64", [] { return H5T_STD_I64LE; }},
                        {"found int16, big-endian", [] { return H5T_STD_I16BE; }},
                        {"found int8", [] { return H5T_STD_I8LE; }},
                        {"found string", [] { return H5T_C_S1; }},
                        {"found compound", [] {
                           const hid_t type = H5Tcreate(H5T_COMPOUND, 8);
                           H5Tinsert(type, "re", 0, H5T_NATIVE_FLOAT);
                           return type;
                         }}};
  for (const Case& c : cases) {
    put("x", [&] { return content(4, c.type(), false); });
    EXPECT_THAT(fault(path("x")), AllOf(HasSubstr(path("x") + ": dataset x"), HasSubstr(c.name),
                                        HasSubstr("uint8, float32 or float64")));
  }
  put("y", [] {
    Hdf5Content c = content(4, H5T_STD_U8LE, false);
    c.y_type = H5T_IEEE_F32LE;
    return c;
  });
  EXPECT_THAT(fault(path("y")), AllOf(HasSubstr("dataset y"), HasSubstr("found float32")));
}

TEST_F(Hdf5, LabelsOfAnyIntegerType) {
  int i = 0;
  for (const auto& type : {std::function<hid_t()>([] { return H5T_STD_I8LE; }),
                           std::function<hid_t()>([] { return H5T_STD_U16BE; }),
                           std::function<hid_t()>([] { return H5T_STD_I32BE; }),
                           std::function<hid_t()>([] { return H5T_STD_U64LE; })}) {
    const std::string name = "y" + std::to_string(i++);
    put(name, [&] {
      Hdf5Content c = content(4, H5T_STD_U8LE, false);
      c.y_type = type();
      c.y = {0, 100, 3, 7};
      return c;
    });
    const DataPair data = open(path(name));
    EXPECT_EQ(data.train->classes(), 101);
    EXPECT_EQ(read_back(*data.train, counted(4)).y, (std::vector<std::int32_t>{0, 100, 3, 7}));
  }
}

TEST_F(Hdf5, LabelsOutsideTheRangeAreNamed) {
  const auto with = [&](const std::string& name, std::int64_t label, std::int64_t classes) {
    put(name, [=] {
      Hdf5Content c = content(2000, H5T_STD_U8LE, false);
      c.y_type = H5T_STD_I32LE;
      c.y[1234] = label;
      c.classes = classes;
      return c;
    });
  };
  with("declared", 10, 10);
  EXPECT_THAT(fault(path("declared")),
              HasSubstr(path("declared") + ": dataset y: sample 1234: "
                                           "expected a label in 0..9, found 10"));
  with("negative", -1, 0);
  EXPECT_THAT(fault(path("negative")),
              HasSubstr("sample 1234: expected a label in 0..2, found -1"));
  with("given", 10, 0);
  EXPECT_EQ(open(path("given")).train->classes(), 11);
  const std::string message =
      error_of(Exit::data, [&] { open(path("given") + ";test=" + path("negative"), 10); });
  EXPECT_THAT(message, AllOf(HasSubstr("2 of 2 data files"), HasSubstr("0..9, found 10"),
                             HasSubstr("0..9, found -1")));
  with("huge", std::int64_t{1} << 30, 0);
  EXPECT_THAT(fault(path("huge")), HasSubstr("found 1073741824"));
  with("odd", 0, 1);
  EXPECT_THAT(fault(path("odd")), AllOf(HasSubstr("attribute classes"), HasSubstr("found 1")));
  EXPECT_EQ(open(path("declared") + ";test=" + path("given"), 11).test->classes(), 11);
}

TEST_F(Hdf5, TestPartTakesTheRuleOfTheTrainingPart) {
  put("train", [] { return content(20, H5T_STD_U8LE, false); });
  put("test", [] { return content(5, H5T_STD_U8LE, false); });
  const DataPair data = open_data("hdf5:" + path("train") + ";test=" + path("test"), 1, storage_);
  EXPECT_EQ(data.test->size(), 5);
  EXPECT_EQ(read_back(*data.test, {3}).x, read_back(*data.train, {3}).x);
  EXPECT_EQ(open(path("train")).test, nullptr);
}

TEST_F(Hdf5, EveryBadShardIsNamedInOneReport) {
  std::string files;
  for (int i = 1; i <= 6; ++i) {
    const std::string name = "s" + std::to_string(i);
    put(name, [] { return content(500, H5T_STD_U8LE, false); });
    files += (i > 1 ? "," : "") + path(name);
  }
  EXPECT_EQ(open(files).train->size(), 3000);
  test::truncate_by(folder_ / "s5", 1000);
  EXPECT_THAT(fault(files), AllOf(HasSubstr(path("s5")), HasSubstr("truncated file")));
  test::write_bytes(folder_ / "s2", "not HDF5 at all");
  std::filesystem::remove(folder_ / "s3");
  put("s6", [] {
    Hdf5Content c = content(4, H5T_STD_U8LE, false);
    c.extent = {4, 3, 2};
    return c;
  });
  EXPECT_THAT(fault(files), AllOf(HasSubstr("4 of 6 data files"), HasSubstr(path("s2") + ": "),
                                  HasSubstr(path("s3") + ": "), HasSubstr("No such file"),
                                  HasSubstr("truncated file"), HasSubstr("[3, 2, 1]"),
                                  Not(HasSubstr(path("s1") + ": "))));
}

TEST_F(Hdf5, MissingAndUnequalParts) {
  put("x_only", [] {
    Hdf5Content c = content(4, H5T_STD_U8LE, false);
    c.y_type = -1;
    return c;
  });
  EXPECT_THAT(fault(path("x_only")), AllOf(HasSubstr("dataset y"), HasSubstr("found [\"x\"]")));
  put("short", [] {
    Hdf5Content c = content(4, H5T_STD_U8LE, false);
    c.y.pop_back();
    return c;
  });
  EXPECT_THAT(fault(path("short")),
              HasSubstr("expected [4], one label for each sample of x, found [3]"));
  put("bytes", [] { return content(4, H5T_STD_U8LE, false); });
  put("floats", [] { return content(4, H5T_IEEE_F32LE, true); });
  EXPECT_THAT(fault(path("bytes") + "," + path("floats")), HasSubstr("found float samples"));
}

TEST_F(Hdf5, ValuesThatAreNotFiniteAreNamed) {
  put("nan", [] {
    Hdf5Content c = content(8, H5T_IEEE_F32LE, true);
    c.x[6 * 5 + 2] = std::nan("");
    return c;
  });
  EXPECT_THAT(fault(path("nan")), AllOf(HasSubstr("dataset x: sample 5:"), HasSubstr("found nan")));
  error_of(Exit::data, [&] { open(path("nan"), std::nullopt, 1); });
}

/// A filter that changes nothing and counts how often a chunk is unpacked.
class UnpackCount {
 public:
  static constexpr H5Z_filter_t kId = 300;  // a number free for tests
  static int& count() {
    static int unpacked = 0;
    return unpacked;
  }
  static void install() {
    const H5Z_class2_t filter{H5Z_CLASS_T_VERS, kId, 1, 1, "count", nullptr, nullptr, &pass};
    SIDESTEP_HDF5(Exit::internal, "filter", H5Zregister(&filter));
  }

 private:
  static std::size_t pass(unsigned flags, std::size_t, const unsigned*, std::size_t bytes,
                          std::size_t*, void**) {
    if ((flags & H5Z_FLAG_REVERSE) != 0) ++count();
    return bytes;
  }
};

TEST_F(Hdf5, ShuffledReadsUnpackEachChunkOnlyAFewTimes) {
  put("chunks", [] {
    UnpackCount::install();
    Hdf5Content c = content(1000, H5T_STD_U8LE, false);
    c.chunk_rows = 100;
    c.filter = UnpackCount::kId;
    return c;
  });
  const auto read_epoch = [](Dataset& data) {
    for (std::int64_t i = 0; i < 1000; ++i) read_back(data, {i * 387 % 1000});
  };
  UnpackCount::count() = 0;
  const DataPair memory = open(path("chunks"));
  read_epoch(*memory.train);
  EXPECT_EQ(UnpackCount::count(), 10) << "once for each chunk";
  UnpackCount::count() = 0;
  const DataPair stream = open(path("chunks"), std::nullopt, 1);
  read_epoch(*stream.train);
  read_epoch(*stream.train);
  EXPECT_EQ(UnpackCount::count(), 20) << "once for the statistics, once for the cache";
}

TEST_F(Hdf5, AHintWhenTheLayoutForcesWaste) {
  const auto hint_for = [&](hsize_t chunk_rows) {
    put("c", [=] {
      Hdf5Content c = content(100, H5T_STD_U8LE, false);
      c.chunk_rows = chunk_rows;
      return c;
    });
    ::testing::internal::CaptureStdout();
    open(path("c"), std::nullopt, 1);
    return ::testing::internal::GetCapturedStdout();
  };
  EXPECT_THAT(hint_for(50), AllOf(HasSubstr("hint"), HasSubstr("chunks of 50 samples")));
  EXPECT_EQ(hint_for(1), "");
  EXPECT_EQ(hint_for(0), "");
}

TEST_F(Hdf5, ALockNamesTheVariableToTry) {
  if (const char* set = std::getenv("HDF5_USE_FILE_LOCKING"); set != nullptr) GTEST_SKIP() << set;
  put("held", [] { return content(4, H5T_STD_U8LE, false); });
  const int fd = ::open(path("held").c_str(), O_RDWR);
  ASSERT_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0);
  EXPECT_THAT(fault(path("held")),
              AllOf(HasSubstr(path("held")), HasSubstr("HDF5_USE_FILE_LOCKING=FALSE"),
                    HasSubstr("errno = 11")));
  ::close(fd);
  EXPECT_EQ(open(path("held")).train->size(), 4);
  // A failed open leaves no lock behind, and two sets may hold one file at the same time.
  const DataPair first = open(path("held"), std::nullopt, 1);
  EXPECT_EQ(open(path("held"), std::nullopt, 1).train->size(), 4);
}

TEST(Hdf5Spec, FilesAndTestFiles) {
  const Hdf5Files both = parse_hdf5("a,b;test=c");
  EXPECT_EQ(both.train, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(both.test, (std::vector<std::string>{"c"}));
  EXPECT_TRUE(parse_hdf5("a").test.empty());
  for (const char* text : {"", "a,", ",a", "a;test=", ";test=b"})
    error_of(Exit::settings, [&] { parse_hdf5(text); });
}

}  // namespace
}  // namespace sidestep
