// The outer optimizer of the model family: makes the next common model of the summed changes of all
// ranks. Owns the outer momentum buffer, if the rule has one. The main thread enqueues.
#pragma once

#include <cstdint>

#include "comm/sync_policy.h"
#include "core/device/buffer.h"
#include "core/graph/param_store.h"
#include "core/optim/flat.h"

namespace sidestep {

class OuterUpdate {
 public:
  /// Allocates a buffer only if mu is not 0. The store outlives the object.
  OuterUpdate(const OuterRule& rule, const ParamStore& store);

  /// Fills in what a round's work reads. `total`: the sum of the ranks' weights; with none at all
  /// neither the model nor the buffer changes. `local_lr`: the round's local rate, the same on
  /// every rank (SlowMo's gamma).
  void set(MeanScalars& scalars, double total, double local_lr) const;
  /// Enqueues the step of elements [begin, end): from the common model before it in `before` and
  /// the summed weighted changes in `sum` to the next one, in `before` and in the store's values.
  /// All are laid out like the store's values.
  void enqueue(Stream& stream, std::int64_t begin, std::int64_t end, const View& before,
               const View& sum, const MeanScalars* scalars);

  bool has_momentum() const { return memory_.size() > 0; }
  /// The momentum buffer, laid out like the store's values.
  View momentum() const;
  std::size_t bytes() const { return memory_.size(); }

 private:
  OuterRule rule_;
  const ParamStore& store_;
  Buffer memory_;
};

/// Elements [begin, end) of a flat view.
View slice(const View& flat, std::int64_t begin, std::int64_t end);

}  // namespace sidestep
