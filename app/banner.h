// What rank 0 says before the first step. Pure: the trainer fills BannerInfo with what is in force.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/rank_info.h"
#include "app/settings.h"

namespace sidestep {

struct BannerInfo {
  const Settings* settings = nullptr;
  const std::vector<RankInfo>* ranks = nullptr;
  std::int64_t parameters = 0;
  std::string train_data, test_data;  ///< Dataset::description(); test_data may be empty
  std::int64_t train_samples = 0, test_samples = 0, classes = 0;
  std::int64_t steps_per_epoch = 0, total_steps = 0;
  std::vector<std::int64_t> shares;  ///< of a full global batch, by rank
  int threads = 0;                   ///< per rank
  bool own_update_thread = false;
  double lr_in_use = 0;  ///< after the scaling rule
  std::int64_t buckets = 0;
  std::int64_t bytes_per_rank =
      0;              ///< planned memory: parameters, gradients, slots, activations, input
  std::string start;  ///< "fresh", "resumed from FILE at step 12 (epoch 1)"
};

/// One line each; no line depends on anything but `info`. `bytes_per_node` is the sum over the
/// ranks of the fullest host.
std::vector<std::string> banner_lines(const BannerInfo& info);

/// The rate that the scaling rule gives for the settings' batch.
double scaled_lr(const Settings& settings);

/// "12.3 MB", "3.1 GB"
std::string bytes_text(double bytes);
/// 61706 -> "61,706"
std::string count_text(std::int64_t count);

}  // namespace sidestep
