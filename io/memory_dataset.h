// A data set held in memory in its stored type, converted when read. read() may be called by any
// number of threads at a time.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "io/dataset.h"
#include "io/normalisation.h"

namespace sidestep {

/// Pixels of all samples, row-major, as stored.
using Pixels = std::variant<std::vector<std::uint8_t>, std::vector<float>>;

/// "uint8 scaled by 1/255, then (x - 0.286041) / 0.353024"; `bytes` for uint8, else float.
std::string scaling_rule(bool bytes, const Normalisation& normalisation);

class MemoryDataset final : public Dataset {
 public:
  /// `sample` is [height, width, channels]; `source` begins the description. Labels lie in
  /// 0..classes-1.
  MemoryDataset(std::string source, Pixels pixels, std::vector<std::int32_t> labels, Shape sample,
                std::int64_t classes, const Normalisation& normalisation);
  std::int64_t size() const override { return static_cast<std::int64_t>(labels_.size()); }
  Shape sample_shape() const override { return sample_; }
  std::int64_t classes() const override { return classes_; }
  std::string description() const override;
  std::uint64_t digest() const override;
  void read(std::span<const std::int64_t> ids, HostBatch out) override;

 private:
  std::string source_;
  Pixels pixels_;
  std::vector<std::int32_t> labels_;
  Shape sample_;
  std::int64_t classes_;
  Normalisation normalisation_;
};

}  // namespace sidestep
