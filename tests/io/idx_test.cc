#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/idx_dataset.h"
#include "io/normalisation.h"
#include "io/storage_thread.h"
#include "tests/io/files.h"

namespace sidestep {
namespace {

using test::error_of;
using test::gzip;
using test::idx_text;
using test::read_back;
using test::write_bytes;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kImages = "train-images-idx3-ubyte";
constexpr const char* kLabels = "train-labels-idx1-ubyte";

std::vector<std::uint8_t> pixels(std::size_t count) {
  std::vector<std::uint8_t> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(static_cast<std::uint8_t>(i * 37));
  return values;
}

const std::string& images6() {
  static const std::string text = idx_text({6, 2, 3}, pixels(36));
  return text;
}
const std::string& labels6() {
  static const std::string text = idx_text({6}, {0, 1, 2, 2, 1, 0});
  return text;
}

class Idx : public ::testing::Test {
 protected:
  void put(const std::string& name, const std::string& text) { write_bytes(folder_ / name, text); }
  DataPair open(std::optional<std::int64_t> classes = std::nullopt) {
    return open_data("idx:" + folder_.str(), 1, storage_, classes);
  }
  std::string fault() {
    return error_of(Exit::data, [this] { open(); });
  }
  test::TempFolder folder_;
  StorageThread storage_;
};

TEST_F(Idx, RawAndGzipAreToldByContent) {
  put(std::string(kImages) + ".gz", images6());  // raw despite its name
  put(kLabels, gzip(labels6()));                 // gzip despite its name
  const DataPair data = open();
  EXPECT_EQ(data.test, nullptr);
  EXPECT_EQ(data.train->size(), 6);
  EXPECT_EQ(data.train->classes(), 3);
  EXPECT_EQ(data.train->sample_shape(), (Shape{2, 3, 1}));
  EXPECT_THAT(data.train->description(), AllOf(HasSubstr(folder_.str()), HasSubstr("6 samples"),
                                               HasSubstr("uint8 scaled by 1/255, then (x - ")));
  const auto got = read_back(*data.train, {5, 1});
  EXPECT_EQ(got.y, (std::vector<std::int32_t>{0, 1}));
  const auto raw = pixels(36);
  PixelStatistics statistics;
  statistics.add(raw);
  std::vector<float> expected(36);
  statistics.normalisation().apply(raw.data(), 36, expected.data());
  EXPECT_EQ(std::vector<float>(got.x.begin(), got.x.begin() + 6),
            std::vector<float>(expected.begin() + 30, expected.end()));
  EXPECT_EQ(std::vector<float>(got.x.begin() + 6, got.x.end()),
            std::vector<float>(expected.begin() + 6, expected.begin() + 12));
}

TEST_F(Idx, SpellingWithADot) {
  put("train-images.idx3-ubyte", images6());
  put("train-labels.idx1-ubyte.gz", gzip(labels6()));
  EXPECT_EQ(open().train->size(), 6);
}

TEST_F(Idx, TheTestPartTakesTheRuleOfTheTrainingPart) {
  put(kImages, images6());
  put(kLabels, labels6());
  put("t10k-images-idx3-ubyte", idx_text({2, 2, 3}, pixels(12)));
  put("t10k-labels-idx1-ubyte", idx_text({2}, {1, 0}));
  const DataPair data = open();
  ASSERT_NE(data.test, nullptr);
  EXPECT_EQ(data.test->classes(), 3);
  EXPECT_EQ(read_back(*data.test, {1}).x, read_back(*data.train, {1}).x) << "the same bytes";
  EXPECT_NE(data.test->digest(), data.train->digest());
}

TEST_F(Idx, AWebPageUnderTheNameOfAFile) {
  put(std::string(kImages) + ".gz", "<!DOCTYPE html>" + std::string(700, ' '));
  put(kLabels, labels6());
  EXPECT_THAT(fault(), AllOf(HasSubstr((folder_ / kImages).string() + ".gz"), HasSubstr("'<!DO'"),
                             HasSubstr("0x3c 0x21"), HasSubstr("0x00 0x00 0x08 0x03")));
}

TEST_F(Idx, EveryBadFileIsNamedInOneReport) {
  put(kImages, images6().substr(0, 40));
  put(kLabels, labels6() + "more");
  put("t10k-images-idx3-ubyte", gzip(images6()).substr(0, 30));
  put("t10k-labels-idx1-ubyte", "");
  EXPECT_THAT(fault(), AllOf(HasSubstr("4 of 4 data files"), HasSubstr("expected 36 bytes"),
                             HasSubstr("found 24"), HasSubstr("found more"),
                             HasSubstr("t10k-images-idx3-ubyte: expected complete gzip data"),
                             HasSubstr("t10k-labels-idx1-ubyte: expected an IDX file"),
                             HasSubstr("an empty file")));
}

TEST_F(Idx, ATruncatedChecksumIsNoticed) {
  const std::string whole = gzip(images6());
  put(kImages, whole.substr(0, whole.size() - 4));
  put(kLabels, labels6());
  EXPECT_THAT(fault(), HasSubstr("expected complete gzip data"));
}

TEST_F(Idx, HeadersThatCannotBe) {
  put(kLabels, labels6());
  put(kImages, idx_text({6, 0, 3}, {}));
  EXPECT_THAT(fault(), HasSubstr("dimension 1 has 0 elements"));
  put(kImages, idx_text({4000000000u, 4000000000u, 4000000000u}, {}));
  EXPECT_THAT(fault(), HasSubstr("cannot be"));
  put(kImages, idx_text({3000000000u, 28, 28}, pixels(10)));  // must not ask for 2 TB
  EXPECT_THAT(fault(), HasSubstr("truncated"));
  put(kImages, idx_text({6, 2}, pixels(12)));
  EXPECT_THAT(fault(), HasSubstr("3 dimensions"));
}

TEST_F(Idx, LabelsAreChecked) {
  put(kImages, images6());
  put(kLabels, labels6());
  EXPECT_EQ(open(7).train->classes(), 7);
  EXPECT_THAT(error_of(Exit::data, [&] { open(2); }),
              AllOf(HasSubstr((folder_ / kLabels).string()), HasSubstr("sample 2:"),
                    HasSubstr("label in 0..1, found 2"), HasSubstr("1 more")));
  put("t10k-images-idx3-ubyte", images6());
  put("t10k-labels-idx1-ubyte", idx_text({6}, {0, 1, 2, 3, 0, 0}));
  EXPECT_THAT(fault(), AllOf(HasSubstr("t10k-labels"), HasSubstr("sample 3:"),
                             HasSubstr("0..2, found 3"), Not(HasSubstr("more"))));
  put(kLabels, idx_text({5}, {0, 1, 0, 1, 0}));
  EXPECT_THAT(fault(), AllOf(HasSubstr("6, found 5"), HasSubstr(kLabels)));
  error_of(Exit::settings, [&] {
    put(kLabels, labels6());
    open(1);
  });
}

TEST_F(Idx, MissingFilesAndFolders) {
  put(kLabels, labels6());
  EXPECT_THAT(fault(), HasSubstr("expected a file train-images-idx3-ubyte or "
                                 "train-images-idx3-ubyte.gz, found none"));
  EXPECT_THAT(
      error_of(Exit::data, [&] { open_data("fashion-mnist:/no/such/folder", 1, storage_); }),
      AllOf(HasSubstr("/no/such/folder"), HasSubstr("dataset-fashion-mnist")));
}

TEST(FashionMnist, TheInstalledSetIsRead) {
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist")) GTEST_SKIP();
  StorageThread storage;
  const DataPair data = open_data("fashion-mnist", 1, storage);
  EXPECT_EQ(data.train->size(), 60000);
  EXPECT_EQ(data.test->size(), 10000);
  EXPECT_EQ(data.train->classes(), 10);
  EXPECT_THAT(data.train->description(), HasSubstr("(x - 0.286041) / 0.353024"));
  EXPECT_EQ(read_back(*data.train, {0, 1, 59999}).y, (std::vector<std::int32_t>{9, 0, 5}));
}

}  // namespace
}  // namespace sidestep
