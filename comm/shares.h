// Integer shares of work for ranks of unequal speed. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sidestep {

/// Gives `units` micro-batches to ranks whose micro-batch takes times[r] (any unit, > 0), at least one
/// each: the next always goes to the rank that would be done with it first. No other division ends
/// earlier (max over ranks of shares[r] * times[r]). Needs units >= ranks.
void greedy_shares(std::int64_t units, std::span<const double> times,
                   std::vector<std::int64_t>& shares);

}  // namespace sidestep
