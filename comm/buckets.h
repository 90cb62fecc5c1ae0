// Buckets: slices of the flat gradient buffer that are exchanged and updated as one. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "core/graph/param_store.h"

namespace sidestep {

struct Bucket {
  std::int64_t begin = 0;  ///< elements in the flat buffers
  std::int64_t end = 0;
  std::vector<ParamId> params;  ///< in flat (ready) order
};

struct BucketPlan {
  std::vector<Bucket> buckets;          ///< in flat order: bucket 0 is ready first
  std::vector<int> bucket_of;           ///< by ParamId
};

struct BucketSizes {
  std::int64_t bytes = 1 << 20;        ///< a bucket is closed once it holds this much
  std::int64_t first_bytes = 1 << 18;  ///< the first is smaller, so that exchange starts early
};

/// Cuts the flat buffer at parameter borders; a parameter larger than a bucket is its own bucket.
BucketPlan plan_buckets(const ParamStore& store, const BucketSizes& sizes);

}  // namespace sidestep
