// What the headers of past rounds tell of each rank's speed. Pure; one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/round_header.h"

namespace sidestep {

class RankSpeeds {
 public:
  explicit RankSpeeds(int ranks);

  /// Entries without compute units hold no measurement.
  void observe(std::span<const RankEntry> entries);
  std::int64_t rounds() const { return rounds_; }
  /// Smoothed seconds of one micro-batch of each rank (0: never measured).
  const std::vector<double>& unit_s() const { return unit_s_; }
  /// Smoothed median over the ranks of the compute time of a round, in seconds.
  double step_s() const { return step_s_; }
  /// Median over the faster half of the ranks of unit_s().
  double clean_unit_s() const;
  /// Share of the last kWindow rounds (or all so far) in which the rank's micro-batch took more than
  /// 1.1 times the median of its round's.
  static constexpr std::size_t kWindow = 64;
  double persistence(int rank) const;
  /// Unit times of the last rounds, oldest first: rounds() x ranks, at most kWindow rounds; 0: none.
  std::vector<std::vector<double>> table() const;

  /// One line of JSON and back.
  std::string save() const;
  void load(const std::string& state);

 private:
  static constexpr double kSlow = 1.1, kSmoothing = 0.1;
  static constexpr double kLeast = 1e-4;  ///< seconds: less is noise of the machine
  std::int64_t rounds_ = 0;
  std::vector<double> unit_s_;
  double step_s_ = 0;
  std::vector<std::vector<double>> ring_;  ///< by round modulo kWindow, then rank
  std::vector<double> scratch_;
};

/// The lower median: half of the values may be outliers upwards. 0 for none.
double lower_median(std::span<const double> values, std::vector<double>& scratch);

}  // namespace sidestep
