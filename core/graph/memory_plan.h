// Where each computed value lives in one slab, by lifetime. Pure; main thread, before step 1.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/graph/graph.h"

namespace sidestep {

struct MemoryPlan {
  static constexpr std::size_t kUnplaced = static_cast<std::size_t>(-1);
  /// By ValueId: byte offset in the slab, kUnplaced for inputs, params and `external` values.
  std::vector<std::size_t> offset;
  std::size_t bytes = 0;  ///< size of the slab
};

/// Greedy by size (largest first, lowest offset that overlaps no value alive at the same time),
/// 64-byte aligned. Values in `keep` live to the end; `external` ones live elsewhere.
/// Source: the "greedy by size" offset calculation of Pisarchyk and Lee, 2020.
MemoryPlan plan_memory(const Graph& graph, std::span<const ValueId> keep,
                       std::span<const ValueId> external);

}  // namespace sidestep
