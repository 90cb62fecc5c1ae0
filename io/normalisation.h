// How stored pixels become the network's input: uint8 scaled by 1/255, float32 as it is; then
// (x - mean) / deviation with one mean and one deviation over the training part. The same pictures
// give the same numbers whichever type holds them. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace sidestep {

/// Elements of the training part that mean and deviation are computed from, at most: its first
/// ones, so that a set larger than memory does not cost a whole pass at start.
inline constexpr std::int64_t kStatisticsElements = std::int64_t{1} << 28;

class Normalisation {
 public:
  /// Both are rounded to six significant digits, so that summation in another type or order gives
  /// the same rule and the printed rule is the one in use. A deviation of 0 becomes 1.
  Normalisation(double mean, double deviation);
  /// out[i] for count elements.
  void apply(const std::uint8_t* stored, std::size_t count, float* out) const;
  void apply(const float* stored, std::size_t count, float* out) const;
  /// "(x - 0.286041) / 0.353024"
  std::string describe() const;

 private:
  float normalised(float x) const { return (x - mean_) / deviation_; }
  float mean_, deviation_;
  std::array<float, 256> of_byte_;
};

/// Mean and population standard deviation of the first kStatisticsElements elements added.
class PixelStatistics {
 public:
  void add(std::span<const std::uint8_t> pixels);
  void add(std::span<const float> pixels);
  bool full() const { return count_ >= kStatisticsElements; }
  Normalisation normalisation() const;

 private:
  std::array<std::int64_t, 256> histogram_{};
  // sums of (x - origin) and its square; the origin, the first float, keeps them small
  double origin_ = 0, sum_ = 0, squares_ = 0;
  std::int64_t count_ = 0;
};

/// Position of the first element that is not finite; -1 if there is none.
std::int64_t first_non_finite(std::span<const float> values);

}  // namespace sidestep
