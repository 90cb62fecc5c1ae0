// Datasets: random access by sample id. read() may be called by one loader thread at a time unless
// a dataset says otherwise.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/shape.h"

namespace sidestep {

/// Where read() puts samples: x float32 [n, height, width, channels], y int32 [n]. Memory is the
/// caller's (pinned).
struct HostBatch {
  float* x = nullptr;
  std::int32_t* y = nullptr;
};

class StorageThread;

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  /// [height, width, channels]
  virtual Shape sample_shape() const = 0;
  virtual std::int64_t classes() const = 0;
  /// One line: files, count, how values are scaled ("uint8 scaled by 1/255, then (x - 0.286) /
  /// 0.353").
  virtual std::string description() const = 0;
  /// Digest of what all ranks must agree on (sizes, labels), not of every byte.
  virtual std::uint64_t digest() const = 0;
  virtual void read(std::span<const std::int64_t> ids, HostBatch out) = 0;
};

/// A training and a test part.
struct DataPair {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> test;  ///< null if the source has none
};

/// Opens `spec`: "fashion-mnist[:DIR]", "idx:DIR", "hdf5:FILE[,FILE...][;test=FILE,...]",
/// "synthetic[:COUNT[xHxWxC[xCLASSES]]]". Everything is checked here: shapes, dtypes, label range,
/// truncation; every bad file is named in one Exit::data error. `storage` runs the HDF5 calls and
/// must outlive the datasets.
///
/// Labels must lie in 0..K-1. K is `classes` if given, else the attribute `classes` of the HDF5
/// dataset y, else the largest training label plus one (at least 2).
/// Fails with Exit::settings for an unknown kind or a malformed spec.
DataPair open_data(const std::string& spec, std::uint64_t seed, StorageThread& storage,
                   std::optional<std::int64_t> classes = std::nullopt);

}  // namespace sidestep
