// Collects a round's "gradient is final" and "last read" reports by bucket and launches full
// buckets in the order of the plan, the same on every rank. Main thread.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "comm/buckets.h"
#include "core/device/event.h"
#include "core/graph/executor.h"

namespace sidestep {

class Reducer final : public GradSink {
 public:
  /// Exchanges a bucket whose gradients are final once `ready` completes.
  using Launch = std::function<void(int bucket, const Event& ready)>;

  /// `plan` outlives the reducer. `hold`: nothing is launched before flush().
  Reducer(const BucketPlan& plan, bool hold, Launch launch);

  void begin();
  void grad_ready(ParamId p, const Event& event) override;
  void last_read(ParamId p, const Event& event) override;
  /// Launches what is left; `all` completes after every gradient and every read of the round.
  void flush(const Event& all);

  /// By bucket: no node of the round reads its parameters after this event. Valid after flush().
  std::span<const Event> last_reads() const { return read_.last; }

 private:
  /// Reports of one kind that are still to come, and the latest event, by bucket.
  struct Countdown {
    std::vector<int> pending;
    std::vector<Event> last;
    void reset(const BucketPlan& plan);
    void count(std::size_t bucket, const Event& event);
  };
  void launch_full();

  const BucketPlan& plan_;
  bool hold_;
  Launch launch_;
  Countdown final_;
  Countdown read_;
  std::size_t next_ = 0;  ///< the first bucket that is not launched
};

}  // namespace sidestep
