// Small made-up parameter stores.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/graph/param_store.h"

namespace sidestep::testing {

/// Vectors "w0", "w1", ... of these lengths; flat order is the order given.
inline ParamStore store_of(const std::vector<std::int64_t>& lengths) {
  std::vector<ParamSpec> specs;
  std::vector<ParamId> order;
  for (const std::int64_t n : lengths) {
    order.push_back(static_cast<ParamId>(specs.size()));
    specs.push_back({.name = "w" + std::to_string(specs.size()), .shape = Shape{n}, .init = {}});
  }
  return ParamStore(std::move(specs), order, Device{});
}

}  // namespace sidestep::testing
