// Which classes get their due under policies that leave samples out for a while: slowness may go with
// what a sample shows, and then a class can be starved (section 9 of the literature map, bias). Each
// rank counts its own samples, main thread; now and then the counts are added up.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/comm_thread.h"

namespace sidestep {

class Coverage {
 public:
  explicit Coverage(std::int64_t classes);

  /// A micro-batch of this rank was handed out; whether it was computed.
  void count(std::span<const std::int32_t> labels, bool computed);
  /// What was computed from here on is one round's work, until the next call.
  void begin_round();
  /// The last round's work was thrown away.
  void write_off();

  struct Class {
    std::int64_t handed_out = 0, applied = 0;
  };
  /// Adds up all ranks' counts since the last call; collective. Says which class departs from its share
  /// by more than kTolerance, where that is more than chance: "" if none does.
  static constexpr double kTolerance = 0.05;
  std::string review(CommThread& comm, std::int64_t step);
  /// By class, over all reviews.
  const std::vector<Class>& totals() const { return totals_; }

 private:
  std::vector<std::int64_t> counts_;  ///< handed out by class, then computed by class
  std::vector<std::int64_t> round_;   ///< computed by class, of the last round
  std::vector<Class> totals_;
};

/// The rule of review(), pure.
std::string starved_class(std::span<const Coverage::Class> classes);

}  // namespace sidestep
