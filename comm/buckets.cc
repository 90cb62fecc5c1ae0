#include "comm/buckets.h"

namespace sidestep {

BucketPlan plan_buckets(const ParamStore& store, const BucketSizes& sizes) {
  constexpr auto kElementBytes = static_cast<std::int64_t>(sizeof(float));
  BucketPlan plan;
  plan.bucket_of.resize(static_cast<std::size_t>(store.count()));
  Bucket open;
  const auto close = [&] {
    if (!open.params.empty()) plan.buckets.push_back(std::move(open));
    open = Bucket{};
  };
  for (const ParamId p : store.order()) {
    const bool alone = store.padded_numel(p) * kElementBytes > sizes.bytes;
    if (alone) close();
    if (open.params.empty()) open.begin = store.offset(p);
    open.end = store.offset(p) + store.padded_numel(p);
    open.params.push_back(p);
    plan.bucket_of[static_cast<std::size_t>(p)] = static_cast<int>(plan.buckets.size());
    const std::int64_t limit = plan.buckets.empty() ? sizes.first_bytes : sizes.bytes;
    if (alone || (open.end - open.begin) * kElementBytes >= limit) close();
  }
  close();
  return plan;
}

}  // namespace sidestep
