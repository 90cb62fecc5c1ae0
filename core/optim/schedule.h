// Learning-rate schedules by samples seen, so that they do not depend on the number of ranks.
#pragma once

#include <cstdint>
#include <string>

namespace sidestep {

struct ScheduleConfig {
  std::string name = "constant";      ///< "constant", "step", "cosine"
  double lr = 0.1;
  std::int64_t warmup_samples = 0;    ///< linear from 0 (exclusive) to lr
  std::int64_t total_samples = 0;     ///< cosine: end of the half wave (min_lr there and after)
  double min_lr = 0;
  std::int64_t step_samples = 0;      ///< step: lr *= gamma each time this many samples are seen
  double gamma = 0.1;
};

/// Rate of the update that covers the samples from `samples_seen` on; batch > 0 is its size
/// (warm-up counts it as seen: the first rate is lr * batch / warmup).
/// Fails with Exit::settings for an unknown name.
double learning_rate(const ScheduleConfig& config, std::int64_t samples_seen, std::int64_t batch);

}  // namespace sidestep
