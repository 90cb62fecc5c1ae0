#include "io/normalisation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace sidestep {
namespace {

std::vector<std::uint8_t> some_bytes() {
  std::vector<std::uint8_t> bytes;
  for (unsigned i = 0; i < 20000; ++i)
    bytes.push_back(static_cast<std::uint8_t>(i * i * 7 + i / 9));
  return bytes;
}

std::vector<float> as_floats(const std::vector<std::uint8_t>& bytes) {
  std::vector<float> floats;
  for (const std::uint8_t b : bytes) floats.push_back(static_cast<float>(b / 255.0));
  return floats;
}

TEST(Normalisation, ResultHasMeanZeroAndDeviationOne) {
  const auto bytes = some_bytes();
  PixelStatistics statistics;
  statistics.add(bytes);
  std::vector<float> out(bytes.size());
  statistics.normalisation().apply(bytes.data(), bytes.size(), out.data());
  double sum = 0, squares = 0;
  for (const float v : out) {
    sum += static_cast<double>(v);
    squares += static_cast<double>(v) * static_cast<double>(v);
  }
  const auto n = static_cast<double>(out.size());
  EXPECT_NEAR(sum / n, 0.0, 1e-5);
  EXPECT_NEAR(squares / n, 1.0, 1e-5);
}

TEST(Normalisation, BytesAndFloatsGiveTheSameBits) {
  const auto bytes = some_bytes();
  const auto floats = as_floats(bytes);
  PixelStatistics of_bytes, of_floats;
  of_bytes.add(bytes);
  of_floats.add(std::span(floats).first(999));
  of_floats.add(std::span(floats).subspan(999));
  std::vector<float> a(bytes.size()), b(bytes.size());
  of_bytes.normalisation().apply(bytes.data(), bytes.size(), a.data());
  of_floats.normalisation().apply(floats.data(), floats.size(), b.data());
  EXPECT_EQ(a, b);
  EXPECT_EQ(of_bytes.normalisation().describe(), of_floats.normalisation().describe());
}

TEST(Normalisation, ThePrintedRuleIsTheOneInUse) {
  const Normalisation rule(0.28604061234, 0.353024);
  EXPECT_EQ(rule.describe(), "(x - 0.286041) / 0.353024");
  const float x = 0.5f;
  float out = 0;
  rule.apply(&x, 1, &out);
  EXPECT_EQ(out, (0.5f - 0.286041f) / 0.353024f);
  EXPECT_EQ(Normalisation(-2, 0).describe(), "(x + 2) / 1");
}

TEST(Normalisation, ConstantAndFarValues) {
  PixelStatistics constant;
  const std::vector<float> same(100, 0.25f);
  constant.add(same);
  EXPECT_EQ(constant.normalisation().describe(), "(x - 0.25) / 1");
  PixelStatistics far;
  const std::vector<float> values{1e6f, 1e6f + 2};
  far.add(values);
  EXPECT_EQ(far.normalisation().describe(), "(x - 1e+06) / 1");
}

TEST(FirstNonFinite, FindsInfinityAndNan) {
  std::vector<float> values(100, std::numeric_limits<float>::max());
  EXPECT_EQ(first_non_finite(values), -1);
  values[70] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(first_non_finite(values), 70);
  values[3] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(first_non_finite(values), 3);
  EXPECT_EQ(first_non_finite({}), -1);
}

}  // namespace
}  // namespace sidestep
