// HDF5 files that are too large for memory, read sample by sample. One thread at a time calls
// read(); HDF5 itself runs on the storage thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "io/dataset.h"
#include "io/hdf5_shard.h"
#include "io/normalisation.h"
#include "io/storage_thread.h"

namespace sidestep {

/// Bytes of unpacked chunks that are kept for one data set.
inline constexpr std::size_t kChunkCacheBytes = std::size_t{512} << 20;

class Hdf5Stream final : public Dataset {
 public:
  /// On the storage thread. The shards agree in sample shape and type; their labels lie in
  /// 0..classes-1.
  Hdf5Stream(std::string source, std::vector<Hdf5Shard> shards, std::int64_t classes,
             const Normalisation& normalisation, StorageThread& storage);
  ~Hdf5Stream() override;
  std::int64_t size() const override { return static_cast<std::int64_t>(labels_.size()); }
  Shape sample_shape() const override { return shards_.front().sample; }
  std::int64_t classes() const override { return classes_; }
  std::string description() const override;
  std::uint64_t digest() const override;
  void read(std::span<const std::int64_t> ids, HostBatch out) override;

 private:
  /// On the storage thread: fills x in the order of the file, so that samples of one chunk are read
  /// together and neighbours in one call.
  void read_pixels(std::span<const std::int64_t> ids, float* x);

  std::string source_;
  std::vector<Hdf5Shard> shards_;
  std::vector<std::int64_t> first_id_;  ///< of each shard
  std::vector<std::int32_t> labels_;
  std::int64_t classes_;
  Normalisation normalisation_;
  StorageThread& storage_;
  std::vector<std::pair<std::int64_t, std::size_t>> order_;  ///< (id, place in the batch), sorted
  std::vector<std::byte> stored_;                            ///< rows as read, of one call
};

}  // namespace sidestep
