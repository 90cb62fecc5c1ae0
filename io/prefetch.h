// Loader thread(s) that keep the next batches ready in pinned host memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/base/trace.h"
#include "core/device/buffer.h"
#include "core/device/event.h"
#include "io/dataset.h"

namespace sidestep {

/// What to load: filled by the caller in the order of the steps.
struct LoadRequest {
  std::int64_t step = 0;
  std::vector<std::int64_t> ids;  ///< may be empty
  std::int64_t epoch = 0;
};

/// A loaded batch; `slot` goes back by release().
struct LoadedBatch {
  std::int64_t step = 0;
  std::int64_t count = 0;
  std::uint64_t digest = 0;  ///< index_digest of the ids
  View x;                    ///< float32 [count, h, w, c] in pinned memory
  View y;                    ///< int32 [count]
  std::span<const std::int64_t> ids;  ///< valid until release()
  int slot = 0;
};

class Prefetcher {
 public:
  /// `depth` batches of at most `max_batch` samples are kept. `next` fills a request, or returns
  /// false when there is nothing left to load; it runs on the loader thread.
  Prefetcher(Dataset& dataset, std::int64_t max_batch, int depth,
             std::function<bool(LoadRequest&)> next, Tracer* tracer);
  ~Prefetcher();
  /// Blocks until the next batch is there; rethrows a loader's failure. `waited_ns` adds the time
  /// spent waiting, without that in which all slots were still in use. Allocates nothing.
  LoadedBatch take(std::int64_t& waited_ns);
  /// The slot may be refilled once `used` completes (the copy to the device).
  void release(int slot, Event used);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sidestep
