// The time cap of DropCompute (Giladi et al. 2023), chosen by replaying measured steps. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace sidestep {

struct DropChoice {
  double tau_s;        ///< infinity: dropping gains nothing
  double speedup = 1;  ///< of the replayed steps, by samples per second
  double dropped = 0;  ///< share of the micro-batches
};

/// `table[step][rank]`: mean seconds of a micro-batch (0: not measured); each rank plans `units` a
/// step. With cap tau a rank begins no micro-batch at or after tau. Of 200 caps it takes the one that
/// maximises (1 - d) / (1 - S), S the share of the steps' time that it saves and d what it drops, with
/// d <= `cap`.
DropChoice choose_tau(const std::vector<std::vector<double>>& table, std::int64_t units, double cap);

}  // namespace sidestep
