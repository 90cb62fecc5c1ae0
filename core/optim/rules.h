// What the optimizers share: their makers, and the merging of parameters into flat runs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/optim/optimizer.h"

namespace sidestep {

/// The settings have been checked. Each adds its slots to the store.
std::unique_ptr<Optimizer> make_sgd(const OptimizerConfig& config, ParamStore& store);
std::unique_ptr<Optimizer> make_adamw(const OptimizerConfig& config, ParamStore& store);

/// Calls f(offset, n, decay) for each longest run of parameters that follow each other in the flat
/// buffers and agree about decay. Runs include the padding, which updates leave zero: with zero
/// weight, gradient and state every rule here gives zero.
template <class F>
void for_each_run(const ParamStore& store, std::span<const ParamId> params, F f) {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool decay = false;
  for (const ParamId p : params) {
    const bool joins = store.offset(p) == end && store.spec(p).decay == decay;
    if (!joins) {
      if (end > begin) f(begin, end - begin, decay);
      begin = store.offset(p);
      decay = store.spec(p).decay;
    }
    end = store.offset(p) + store.padded_numel(p);
  }
  if (end > begin) f(begin, end - begin, decay);
}

}  // namespace sidestep
