#include "io/normalisation.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

namespace sidestep {
namespace {

std::string six_digits(double x) { return fmt::format("{:.6g}", x); }
double rounded(double x) { return std::strtod(six_digits(x).c_str(), nullptr); }

/// The part of `pixels` that still counts.
template <class T>
std::span<const T> within_limit(std::span<const T> pixels, std::int64_t count) {
  const auto room =
      static_cast<std::size_t>(std::max<std::int64_t>(kStatisticsElements - count, 0));
  return pixels.first(std::min(pixels.size(), room));
}

float scaled(std::size_t byte) { return static_cast<float>(byte) / 255.0f; }

}  // namespace

Normalisation::Normalisation(double mean, double deviation)
    : mean_(static_cast<float>(rounded(mean))), deviation_(static_cast<float>(rounded(deviation))) {
  if (!(deviation_ > 0)) deviation_ = 1;
  for (std::size_t v = 0; v < of_byte_.size(); ++v) of_byte_[v] = normalised(scaled(v));
}

void Normalisation::apply(const std::uint8_t* stored, std::size_t count, float* out) const {
  for (std::size_t i = 0; i < count; ++i) out[i] = of_byte_[stored[i]];
}

void Normalisation::apply(const float* stored, std::size_t count, float* out) const {
  for (std::size_t i = 0; i < count; ++i) out[i] = normalised(stored[i]);
}

std::string Normalisation::describe() const {
  const std::string mean = six_digits(std::abs(static_cast<double>(mean_)));
  return fmt::format("(x {} {}) / {}", mean_ < 0 ? '+' : '-', mean,
                     six_digits(static_cast<double>(deviation_)));
}

void PixelStatistics::add(std::span<const std::uint8_t> pixels) {
  const auto counted = within_limit(pixels, count_);
  for (const std::uint8_t v : counted) ++histogram_[v];
  count_ += static_cast<std::int64_t>(counted.size());
}

void PixelStatistics::add(std::span<const float> pixels) {
  const auto counted = within_limit(pixels, count_);
  if (count_ == 0 && !counted.empty()) origin_ = static_cast<double>(counted[0]);
  for (const float v : counted) {
    const double d = static_cast<double>(v) - origin_;
    sum_ += d;
    squares_ += d * d;
  }
  count_ += static_cast<std::int64_t>(counted.size());
}

Normalisation PixelStatistics::normalisation() const {
  if (count_ == 0) return {0, 1};
  double sum = sum_, squares = squares_;
  for (std::size_t v = 0; v < histogram_.size(); ++v) {
    const double d = static_cast<double>(scaled(v)) - origin_;
    const auto times = static_cast<double>(histogram_[v]);
    sum += times * d;
    squares += times * d * d;
  }
  const auto n = static_cast<double>(count_);
  const double mean = sum / n;
  return {origin_ + mean, std::sqrt(std::max(squares / n - mean * mean, 0.0))};
}

std::int64_t first_non_finite(std::span<const float> values) {
  const auto non_finite = [](float v) {  // all bits of the exponent are set
    constexpr std::uint32_t kExponent = 0x7f800000u;
    return (std::bit_cast<std::uint32_t>(v) & kExponent) == kExponent;
  };
  // A loop without an early end is vectorised; the search rarely runs.
  bool any = false;
  for (const float v : values) any |= non_finite(v);
  if (!any) return -1;
  return std::find_if(values.begin(), values.end(), non_finite) - values.begin();
}

}  // namespace sidestep
