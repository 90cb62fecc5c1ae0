// When the gradient has changed enough to call for an exchange (SelSync, Tyagi and Swany 2023). Pure;
// one thread. Not the released code's metric, whose double window mean never fires after its warm-up:
// n2 = |g|^2 over all parameters, m <- b n2 + (1 - b) m with b = min(ranks / 100, 1), and
// Delta = |m - m_prev| / m_prev.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sidestep {

class SelSyncVote {
 public:
  struct Config {
    int ranks = 1;
    double delta = 0;      ///< exchange when Delta >= delta; 0: chosen from `rate`
    double rate = 0.1;     ///< wanted share of steps on which any rank votes to exchange
  };
  static constexpr std::int64_t kForced = 25;       ///< first steps that always exchange
  static constexpr std::int64_t kCalibrated = 200;  ///< likewise while delta is being chosen

  SelSyncVote() : SelSyncVote(Config()) {}
  explicit SelSyncVote(const Config& config);

  /// After each local step: its squared gradient norm; true: exchange. A step with n2 = 0 (no samples)
  /// votes no and leaves everything as it is.
  bool vote(double n2);
  /// In force; 0 while it is being chosen. Each rank chooses its own, as the q-quantile of its Deltas
  /// with 1 - q^ranks = rate.
  double delta() const { return delta_; }
  double change() const { return change_; }  ///< the last Delta

  /// As one line of JSON.
  std::string save() const;
  void load(const std::string& state);

 private:
  Config config_;
  double smoothing_;
  std::int64_t steps_ = 0;
  double mean_ = 0, change_ = 0, delta_ = 0;
  std::vector<double> recorded_;
};

}  // namespace sidestep
