#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "io/storage_thread.h"
#include "io/synthetic_dataset.h"
#include "tests/io/files.h"

namespace sidestep {
namespace {

using test::read_back;
using ::testing::HasSubstr;

std::vector<std::int64_t> first_ids(std::int64_t n) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(n));
  std::iota(ids.begin(), ids.end(), std::int64_t{0});
  return ids;
}

TEST(Synthetic, DefaultsAndSpec) {
  StorageThread storage;
  const DataPair standard = open_data("synthetic", 1, storage);
  EXPECT_EQ(standard.train->size(), 4096);
  EXPECT_EQ(standard.test->size(), 1024);
  EXPECT_EQ(standard.train->sample_shape(), (Shape{28, 28, 1}));
  EXPECT_EQ(standard.train->classes(), 10);
  EXPECT_THAT(standard.train->description(), HasSubstr("4096 samples of 28x28x1, 10 classes"));
  const DataPair given = open_data("synthetic:10x5x6x3x4", 1, storage);
  EXPECT_EQ(given.train->sample_shape(), (Shape{5, 6, 3}));
  EXPECT_EQ(given.train->classes(), 4);
  EXPECT_EQ(open_data("synthetic:10x5x6x3", 1, storage, 20).train->classes(), 20);
}

TEST(Synthetic, RefusesMalformedSpecs) {
  for (const char* text : {"x", "10x", "10x2", "10x2x3", "0", "-3", "10x2x3x1x1", "10x2x3x1x5x",
                           "a", "10x2x3x1x5x6", "99999999999999999999", "1x1000000x1000000x1000"})
    EXPECT_THAT(test::error_of(Exit::settings, [&] { parse_synthetic(text); }),
                HasSubstr("found '" + std::string(text) + "'"));
  StorageThread storage;
  test::error_of(Exit::settings, [&] { open_data("synthetic", 1, storage, 9); });
}

TEST(Synthetic, AFunctionOfSeedPartAndId) {
  StorageThread storage;
  const DataPair a = open_data("synthetic:64", 1, storage),
                 b = open_data("synthetic:64", 1, storage);
  const DataPair other = open_data("synthetic:64", 2, storage);
  const auto all = read_back(*a.train, first_ids(64));
  const auto one = read_back(*b.train, {63});
  EXPECT_EQ(std::vector<float>(all.x.end() - 784, all.x.end()), one.x);
  EXPECT_EQ(all.y.back(), one.y[0]);
  EXPECT_NE(all.x, read_back(*other.train, first_ids(64)).x);
  EXPECT_NE(read_back(*a.train, {0}).x, read_back(*a.test, {0}).x);
  EXPECT_EQ(a.train->digest(), b.train->digest());
  EXPECT_NE(a.train->digest(), other.train->digest());
  EXPECT_NE(a.train->digest(), a.test->digest());
}

TEST(Synthetic, TestPartIsClassifiedByTheMeansOfTheTrainingPart) {
  StorageThread storage;
  const DataPair data = open_data("synthetic:2000x14x14x1x5", 3, storage);
  const auto train = read_back(*data.train, first_ids(2000));
  const auto test = read_back(*data.test, first_ids(500));
  constexpr std::size_t kPixels = 196;
  std::vector<std::vector<double>> mean(5, std::vector<double>(kPixels));
  std::vector<double> count(5);
  for (std::size_t i = 0; i < 2000; ++i) {
    const auto k = static_cast<std::size_t>(train.y[i]);
    ++count[k];
    for (std::size_t p = 0; p < kPixels; ++p)
      mean[k][p] += static_cast<double>(train.x[i * kPixels + p]);
  }
  for (const double n : count) EXPECT_GT(n, 300);
  int correct = 0;
  for (std::size_t i = 0; i < 500; ++i) {
    std::size_t best = 0;
    double least = 1e300;
    for (std::size_t k = 0; k < 5; ++k) {
      double distance = 0;
      for (std::size_t p = 0; p < kPixels; ++p) {
        const double d = mean[k][p] / count[k] - static_cast<double>(test.x[i * kPixels + p]);
        distance += d * d;
      }
      if (distance < least) least = distance, best = k;
    }
    correct += best == static_cast<std::size_t>(test.y[i]) ? 1 : 0;
  }
  EXPECT_GT(correct, 450);
}

TEST(OpenData, UnknownKindsAreNamed) {
  StorageThread storage;
  for (const char* spec : {"", "mnist", "idx", "idx:", "hdf5:", "hdf5"})
    EXPECT_THAT(test::error_of(Exit::settings, [&] { open_data(spec, 1, storage); }),
                HasSubstr("fashion-mnist[:DIR]"));
}

}  // namespace
}  // namespace sidestep
