#include "io/synthetic_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "io/data_checks.h"
#include "io/memory_dataset.h"

namespace sidestep {
namespace {

/// A pattern has about this many patches along each side: coarse enough to survive pooling.
constexpr std::int64_t kPatches = 7;
/// A pixel is this share of its pattern and the rest noise.
constexpr int kPatternWeight = 1, kNoiseWeight = 3;
/// Samples that mean and deviation are computed from; the data has no trend.
constexpr std::int64_t kStatisticsSamples = 256;
/// More elements than this in one sample or pattern set is a typing error.
constexpr std::int64_t kMostElements = std::int64_t{1} << 31;

std::vector<std::uint8_t> make_patterns(const SyntheticShape& shape, std::uint64_t seed) {
  const std::int64_t side_h = std::max<std::int64_t>(1, shape.height / kPatches);
  const std::int64_t side_w = std::max<std::int64_t>(1, shape.width / kPatches);
  std::vector<std::uint8_t> patterns;
  patterns.reserve(
      static_cast<std::size_t>(shape.classes * shape.height * shape.width * shape.channels));
  for (std::int64_t k = 0; k < shape.classes; ++k) {
    const std::uint64_t key = rng_key(seed, "synthetic pattern", static_cast<std::uint64_t>(k));
    for (std::int64_t h = 0; h < shape.height; ++h)
      for (std::int64_t w = 0; w < shape.width; ++w)
        for (std::int64_t c = 0; c < shape.channels; ++c) {
          const std::int64_t patch = (h / side_h * shape.width + w / side_w) * shape.channels + c;
          patterns.push_back(
              static_cast<std::uint8_t>(random_bits(key, static_cast<std::uint64_t>(patch)) >> 56));
        }
  }
  return patterns;
}

}  // namespace

SyntheticDataset::SyntheticDataset(const SyntheticShape& shape, std::uint64_t seed, Part part)
    : shape_(shape), key_(rng_key(seed, "synthetic train")), patterns_(make_patterns(shape, seed)) {
  normalisation_ = measure();  // of training samples, for both parts
  if (part == Part::test) key_ = rng_key(seed, "synthetic test");
}

std::string SyntheticDataset::description() const {
  return fmt::format("synthetic: {}; {}",
                     describe_samples(shape_.count, sample_shape(), shape_.classes),
                     scaling_rule(true, normalisation_));
}

std::uint64_t SyntheticDataset::digest() const {
  const std::uint64_t numbers[] = {key_,
                                   static_cast<std::uint64_t>(shape_.count),
                                   static_cast<std::uint64_t>(shape_.height),
                                   static_cast<std::uint64_t>(shape_.width),
                                   static_cast<std::uint64_t>(shape_.channels),
                                   static_cast<std::uint64_t>(shape_.classes)};
  return hash64(numbers, sizeof numbers);
}

std::int32_t SyntheticDataset::label(std::int64_t id) const {
  return static_cast<std::int32_t>(random_below(key_, static_cast<std::uint64_t>(id),
                                                static_cast<std::uint64_t>(shape_.classes)));
}

template <class Take>
void SyntheticDataset::draw(std::int64_t id, Take take) const {
  const auto count = static_cast<std::size_t>(sample_shape().numel());
  const std::uint8_t* pattern = patterns_.data() + static_cast<std::size_t>(label(id)) * count;
  const auto low = static_cast<std::uint32_t>(id);
  const auto high = static_cast<std::uint32_t>(static_cast<std::uint64_t>(id) >> 32);
  std::array<std::uint8_t, 16> pixels;  // one draw gives this much noise
  for (std::size_t begin = 0; begin < count; begin += pixels.size()) {
    // 2 sets these counters apart from those of random_bits and random_below
    const auto block = static_cast<std::uint32_t>(begin / pixels.size());
    const Philox4 noise = philox4x32({{low, high, block, 2}}, key_);
    const std::size_t here = std::min(pixels.size(), count - begin);
    for (std::size_t i = 0; i < here; ++i) {
      const int byte = static_cast<int>((noise.v[i / 4] >> (8 * (i % 4))) & 0xffu);
      pixels[i] =
          static_cast<std::uint8_t>((kPatternWeight * pattern[begin + i] + kNoiseWeight * byte) /
                                    (kPatternWeight + kNoiseWeight));
    }
    take(begin, std::span<const std::uint8_t>(pixels.data(), here));
  }
}

Normalisation SyntheticDataset::measure() const {
  PixelStatistics statistics;
  for (std::int64_t id = 0; id < kStatisticsSamples && !statistics.full(); ++id)
    draw(id, [&](std::size_t, std::span<const std::uint8_t> pixels) { statistics.add(pixels); });
  return statistics.normalisation();
}

void SyntheticDataset::read(std::span<const std::int64_t> ids, HostBatch out) {
  check_ids(ids, size());
  const auto count = static_cast<std::size_t>(sample_shape().numel());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    draw(ids[i], [&](std::size_t begin, std::span<const std::uint8_t> pixels) {
      normalisation_.apply(pixels.data(), pixels.size(), out.x + i * count + begin);
    });
    out.y[i] = label(ids[i]);
  }
}

SyntheticShape parse_synthetic(const std::string& text) {
  SyntheticShape shape;
  if (text.empty()) return shape;
  std::array<std::int64_t, 5> numbers{};
  std::size_t found = 0;
  const char* at = text.data();
  const char* const end = at + text.size();
  bool valid = true;
  while (valid && found < numbers.size()) {
    const auto [next, problem] = std::from_chars(at, end, numbers[found]);
    valid = problem == std::errc() && numbers[found] >= 1 && numbers[found] < kMostElements;
    ++found;
    at = next;
    if (at == end || *at != 'x') break;
    ++at;
  }
  if (!valid || at != end || text.back() == 'x' || (found != 1 && found < 4))
    fail(Exit::settings,
         fmt::format("synthetic: expected COUNT, COUNTxHxWxC or COUNTxHxWxCxCLASSES with positive "
                     "numbers, as in 4096x28x28x1x10, found '{}'",
                     text));
  shape.count = numbers[0];
  if (found >= 4) {
    shape.height = numbers[1];
    shape.width = numbers[2];
    shape.channels = numbers[3];
  }
  if (found == 5) shape.classes = numbers[4];
  const double elements = static_cast<double>(shape.height) * static_cast<double>(shape.width) *
                          static_cast<double>(shape.channels) * static_cast<double>(shape.classes);
  if (shape.classes < 2 || elements > static_cast<double>(kMostElements))
    fail(Exit::settings, fmt::format("synthetic: expected at least 2 classes and at most {} "
                                     "elements in their patterns, found '{}'",
                                     kMostElements, text));
  return shape;
}

}  // namespace sidestep
