// One in-process rank that trains a made-up model by hand, round by round as its engine gives them:
// two layers of element-wise linear regression, loss sum of 0.5 (w x - t)^2; or gradients that do
// not depend on the weights, so that sums over any order of rounds are exact.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/quorum_engine.h"
#include "comm/round_engine.h"
#include "core/optim/optimizer.h"

namespace sidestep::testing {

struct QuorumSettings {
  RoundRule rule;
  bool early = true;
  bool micro_batches = false;    ///< two a round instead of one
  bool whole_gradients = false;  ///< small whole numbers, whatever the weights
  bool whole_shares = false;     ///< every rank has the same number of samples in each round
  double clip_norm = 0;
  OptimizerConfig optimizer{.name = "sgd", .momentum = 0.9, .weight_decay = 0.001};
  double lr = 0.015625;
  std::int64_t rounds = 50;
  std::int64_t flush_every = 10;
  int max_sleep_us = 0;  ///< each pass takes up to this much longer, on the compute stream
  int slow_rank = -1;    ///< its passes take slow_us longer
  int slow_us = 0;
  std::uint64_t seed = 0;  ///< of the delays
  std::vector<JournalLine> replay;
  /// On the compute stream, in the middle of a pass.
  std::function<void(int rank, std::int64_t round)> in_pass;
  /// On the update stream, after each round.
  std::function<void(int rank, std::int64_t round, const View& master)> applied;
  /// A rank's wish to stop.
  std::function<bool(int rank, std::int64_t round)> stop;
  /// Multiplies gradients.
  std::function<float(int rank, std::int64_t round)> factor;
};

/// What one rank has seen.
struct QuorumRecord {
  std::vector<RoundResult> results;  ///< entries are in `entries`
  std::vector<std::vector<RankEntry>> entries;
  std::vector<std::vector<float>> masters;  ///< after each round
  std::vector<float> weights;               ///< at the end
  std::vector<JournalLine> journal;
  std::vector<std::int64_t> claimed;
  std::int64_t produced = 0;
  QuorumEngine::Counts counts;
};

class QuorumRank {
 public:
  static constexpr std::int64_t kWidth = 20;
  static constexpr int kLayers = 3;
  static constexpr std::int64_t kShare = 4;  ///< samples of a rank's range of a round, at most

  QuorumRank(std::unique_ptr<Communicator> comm, const QuorumSettings& settings);
  ~QuorumRank();

  /// Works on rounds until there are none any more.
  QuorumRecord run();
  /// The same number of rounds with every rank in each, by the gradient family's engine.
  QuorumRecord run_bsp();
  QuorumEngine& engine() { return *quorum_; }

  /// Samples of a rank in a round; none in some.
  static std::int64_t share(const QuorumSettings& settings, int rank, std::int64_t round);
  /// The gradient of element `i` for one sample with whole_gradients.
  static float whole_gradient(int rank, std::int64_t round, std::int64_t sample, std::int64_t i);

 private:
  RoundInfo plan(std::int64_t round) const;
  void work(Engine& engine, std::int64_t round);
  void micro_batch(Engine& engine, std::int64_t round, std::int64_t first, std::int64_t samples,
                   bool last);
  void forward(std::int64_t round, std::int64_t first, std::int64_t samples);
  void backward(std::int64_t round, std::int64_t first, std::int64_t samples, GradSink& sink);
  void sleep(std::int64_t round, int place) const;
  void collect(Engine& engine, std::int64_t up_to, QuorumRecord& record);
  std::vector<float> copy_of(const View& flat) const;

  const QuorumSettings settings_;
  ParamStore store_;
  std::unique_ptr<Optimizer> optimizer_;
  CommThread comm_;
  int rank_, ranks_;
  Stream compute_, update_;
  double loss_ = 0;
  std::int64_t weight_ = 0, correct_ = 0;
  std::vector<float> residual_;
  std::vector<std::vector<float>> masters_;
  std::vector<JournalLine> journal_;
  std::unique_ptr<QuorumEngine> quorum_;
  std::unique_ptr<RoundEngine> bsp_;
};

/// Runs ranks and returns their records, in rank order.
std::vector<QuorumRecord> run_quorum(int ranks, const QuorumSettings& settings,
                                     int max_delay_us = 0, bool bsp = false);

}  // namespace sidestep::testing
