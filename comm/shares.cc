#include "comm/shares.h"

#include "core/base/error.h"

namespace sidestep {

void greedy_shares(std::int64_t units, std::span<const double> times,
                   std::vector<std::int64_t>& shares) {
  const auto ranks = static_cast<std::int64_t>(times.size());
  check(ranks > 0 && units >= ranks, "at least one micro-batch for each rank");
  shares.assign(times.size(), 1);
  for (std::int64_t left = units - ranks; left > 0; --left) {
    std::size_t first = 0;
    for (std::size_t r = 1; r < times.size(); ++r)
      if (static_cast<double>(shares[r] + 1) * times[r] <
          static_cast<double>(shares[first] + 1) * times[first])
        first = r;
    ++shares[first];
  }
}

}  // namespace sidestep
