#include "io/hdf5_stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/data_checks.h"
#include "io/memory_dataset.h"

namespace sidestep {
namespace {

/// Neighbouring samples are read together up to this size.
constexpr std::size_t kReadBytes = std::size_t{1} << 20;

}  // namespace

Hdf5Stream::Hdf5Stream(std::string source, std::vector<Hdf5Shard> shards, std::int64_t classes,
                       const Normalisation& normalisation, StorageThread& storage)
    : source_(std::move(source)),
      shards_(std::move(shards)),
      classes_(classes),
      normalisation_(normalisation),
      storage_(storage) {
  std::int64_t next = 0;
  std::vector<LabelFile> labels;
  for (Hdf5Shard& shard : shards_) {
    first_id_.push_back(next);
    next += shard.count;
    labels.push_back(std::move(shard.labels));
    set_chunk_cache(shard, kChunkCacheBytes / shards_.size());
  }
  labels_ = joined_labels(labels);
  const std::size_t row = shards_.front().row_bytes();
  stored_.resize(std::max(kReadBytes / row, std::size_t{1}) * row);
}

Hdf5Stream::~Hdf5Stream() {
  storage_.read_now([this] { shards_.clear(); });
}

std::string Hdf5Stream::description() const {
  return fmt::format("{}: {}; {}; read on demand", source_,
                     describe_samples(size(), sample_shape(), classes_),
                     scaling_rule(shards_.front().bytes, normalisation_));
}

std::uint64_t Hdf5Stream::digest() const { return data_digest(sample_shape(), classes_, labels_); }

void Hdf5Stream::read(std::span<const std::int64_t> ids, HostBatch out) {
  check_ids(ids, size());
  for (std::size_t i = 0; i < ids.size(); ++i) out.y[i] = labels_[static_cast<std::size_t>(ids[i])];
  struct Call {  // one reference to capture: no allocation
    Hdf5Stream& self;
    std::span<const std::int64_t> ids;
    float* x;
  } call{*this, ids, out.x};
  storage_.read_now([&call] { call.self.read_pixels(call.ids, call.x); });
}

void Hdf5Stream::read_pixels(std::span<const std::int64_t> ids, float* x) {
  order_.clear();
  for (std::size_t i = 0; i < ids.size(); ++i) order_.emplace_back(ids[i], i);
  std::sort(order_.begin(), order_.end());

  const auto pixels = static_cast<std::size_t>(sample_shape().numel());
  const std::size_t most = stored_.size() / shards_.front().row_bytes();
  for (std::size_t begin = 0; begin < order_.size();) {
    const std::int64_t first = order_[begin].first;
    const auto place = std::upper_bound(first_id_.begin(), first_id_.end(), first) - 1;
    const Hdf5Shard& shard = shards_[static_cast<std::size_t>(place - first_id_.begin())];
    const std::int64_t row = first - *place;
    std::size_t count = 1;
    while (begin + count < order_.size() && count < most &&
           row + static_cast<std::int64_t>(count) < shard.count &&
           order_[begin + count].first == first + static_cast<std::int64_t>(count))
      ++count;
    read_rows(shard, row, static_cast<std::int64_t>(count), stored_.data());
    for (std::size_t i = 0; i < count; ++i) {
      float* to = x + order_[begin + i].second * pixels;
      const std::byte* from = stored_.data() + i * shard.row_bytes();
      if (shard.bytes)
        normalisation_.apply(reinterpret_cast<const std::uint8_t*>(from), pixels, to);
      else
        normalisation_.apply(reinterpret_cast<const float*>(from), pixels, to);
    }
    begin += count;
  }
}

}  // namespace sidestep
