// The global order of samples: a pure function of (seed, epoch), the same for any number of ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sidestep {

/// Position in the data: everything needed to go on at the same sample.
struct Cursor {
  std::int64_t epoch = 0;
  std::int64_t position = 0;  ///< samples of this epoch already taken by global batches
  bool operator==(const Cursor&) const = default;
};

class Sampler {
 public:
  /// `batch` is the global batch; the last one of an epoch may be smaller (every sample once).
  Sampler(std::int64_t dataset_size, std::int64_t batch, std::uint64_t seed, bool shuffle);

  /// Size of the global batch at the cursor.
  std::int64_t batch_at(const Cursor& cursor) const;
  Cursor next(const Cursor& cursor) const;
  std::int64_t steps_per_epoch() const;
  /// Ids of the samples [begin, end) of the global batch at the cursor, for one rank's range; written
  /// to `ids` (resized; no allocation once it has grown). Keeps the epoch's permutation (Fisher-Yates
  /// from the counter-based generator), so call from one thread.
  void ids(const Cursor& cursor, std::int64_t begin, std::int64_t end, std::vector<std::int64_t>& ids);
  /// Appends the ids at the positions [begin, end) of an epoch's order.
  void append_ids(std::int64_t epoch, std::int64_t begin, std::int64_t end,
                  std::vector<std::int64_t>& ids);
  /// Every global batch size that occurs: {batch, tail} or {batch}.
  std::vector<std::int64_t> batch_sizes() const;

 private:
  void load_epoch(std::int64_t epoch);
  std::int64_t size_, batch_;
  std::uint64_t seed_;
  bool shuffle_;
  std::int64_t loaded_epoch_ = -1;
  std::vector<std::int64_t> order_;
};

/// Digest of which samples a step used, as a sum over its samples, so that the ranks' digests add up
/// (modulo 2^64) to that of one rank.
std::uint64_t index_digest(std::span<const std::int64_t> ids, std::int64_t epoch);

}  // namespace sidestep
