// Made-up data that can be learnt: needs no files, costs no memory. read() may be called by any
// number of threads at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "io/dataset.h"
#include "io/normalisation.h"

namespace sidestep {

struct SyntheticShape {
  std::int64_t count = 4096;
  std::int64_t height = 28, width = 28, channels = 1;
  std::int64_t classes = 10;
};

/// Sample `id` is the coarse pattern of its class under noise, as bytes: a pure function of (seed,
/// part, id), so every rank sees the same data.
class SyntheticDataset final : public Dataset {
 public:
  enum class Part { train, test };
  SyntheticDataset(const SyntheticShape& shape, std::uint64_t seed, Part part);
  std::int64_t size() const override { return shape_.count; }
  Shape sample_shape() const override { return {shape_.height, shape_.width, shape_.channels}; }
  std::int64_t classes() const override { return shape_.classes; }
  std::string description() const override;
  std::uint64_t digest() const override;
  void read(std::span<const std::int64_t> ids, HostBatch out) override;

 private:
  std::int32_t label(std::int64_t id) const;
  /// Calls take(position, bytes) for each piece of a sample's pixels, in order.
  template <class Take>
  void draw(std::int64_t id, Take take) const;
  Normalisation measure() const;

  SyntheticShape shape_;
  std::uint64_t key_;                   ///< of this part's samples
  std::vector<std::uint8_t> patterns_;  ///< [classes, height, width, channels]
  Normalisation normalisation_{0, 1};
};

/// "COUNT[xHxWxC[xCLASSES]]", or empty for the default. Exit::settings naming what was expected.
SyntheticShape parse_synthetic(const std::string& text);

}  // namespace sidestep
