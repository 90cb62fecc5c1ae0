// Evaluation over a dataset, exact for any number of ranks: every sample once, integers summed over
// the ranks. Main thread, between steps, while nothing of a step is outstanding.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/comm_thread.h"
#include "core/graph/executor.h"
#include "io/dataset.h"

namespace sidestep {

struct EvalResult {
  double loss = 0;  ///< mean over the samples
  std::int64_t correct = 0;
  std::int64_t samples = 0;
  double accuracy() const {
    return samples > 0 ? static_cast<double>(correct) / static_cast<double>(samples) : 0;
  }
};

class Evaluator {
 public:
  /// `batch` is what one rank computes at once. Shares the parameters; plans its own activations.
  Evaluator(const ModelBuilder& build, std::shared_ptr<ParamStore> params, Dataset& data,
            std::int64_t batch, int rank, int ranks);
  /// Every rank calls it at the same step; all get the same result.
  EvalResult run(Stream& compute, CommThread& comm, std::int64_t step);
  std::size_t bytes() const;

 private:
  std::vector<std::int64_t> batches() const;
  void run_batch(Stream& compute, std::int64_t first, std::int64_t count, std::int64_t step);

  Dataset& data_;
  std::int64_t begin_, end_;  ///< this rank's samples
  std::int64_t batch_;
  Executor executor_;
  Buffer host_x_, host_y_;
  std::vector<std::int64_t> ids_;
  std::array<std::int64_t, 2> counts_{};  ///< correct, samples
  double loss_ = 0;
};

}  // namespace sidestep
