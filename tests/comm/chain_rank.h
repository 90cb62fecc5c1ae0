// One in-process rank that trains a made-up model by hand: a chain h_l = h_{l-1} * w_l (element by
// element), loss 0.5 (h_L - t)^2. The input gradient of a layer reads its weights after their own
// gradient is final, as real layers do.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/round_engine.h"
#include "core/optim/optimizer.h"

namespace sidestep::testing {

struct ChainOptions {
  RoundEngine::Options engine{.buckets = {.bytes = 256, .first_bytes = 128}};
  OptimizerConfig optimizer{.name = "sgd", .momentum = 0.9, .weight_decay = 0.001};
  StreamMode mode = StreamMode::threaded;
  bool one_stream = false;      ///< updates run on the compute stream
  int max_reader_delay_us = 0;  ///< each last reader comes up to this much late
  std::uint64_t delay_seed = 0;
  /// Tells the engine that nobody reads the last layer's weights. The others it knows of, so that the
  /// only update that comes too early is one the test orders, and not a data race.
  bool forget_last_reads = false;
};

class ChainRank {
 public:
  static constexpr int kLayers = 5;
  static constexpr std::int64_t kWidth = 24;
  static constexpr std::int64_t kMaxSamples = 64;
  static constexpr double kLearningRate = 0.03125;

  ChainRank(std::unique_ptr<Communicator> comm, const ChainOptions& options);
  ~ChainRank();

  /// Enqueues step `step` on samples first, first + 1, ...; none is allowed.
  void train(std::int64_t step, std::int64_t first, std::int64_t samples);
  /// A step in micro-batches of `part` samples from each of `firsts` on; that the last one is the last
  /// was foreseen, or not. The engine must know of micro-batches.
  void train_parts(std::int64_t step, const std::vector<std::int64_t>& firsts, std::int64_t part,
                   bool foreseen);
  /// Enqueues a step whose local gradient of each layer is written by `fill(layer, gradient)`.
  void train_by_hand(std::int64_t step, std::int64_t weight, std::function<void(int, float*)> fill,
                     double loss = 1);
  /// Called (on the compute stream) before layer `layer` is read for the last time in a step.
  void set_reader_hook(std::function<void(int layer)> hook) { reader_hook_ = std::move(hook); }

  RoundEngine& engine() { return *engine_; }
  int rank() const { return comm_.rank(); }
  int ranks() const { return comm_.size(); }
  /// All weights, after the last finished round.
  std::vector<float> weights();

 private:
  void begin(std::int64_t step);
  void forward(std::int64_t first, std::int64_t samples);
  void backward(std::int64_t step, std::int64_t samples, bool last = true);
  void delay_reader(std::int64_t step, int layer);
  float* h(int layer) { return h_.data() + layer * kMaxSamples * kWidth; }

  const ChainOptions options_;
  ParamStore store_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<float> h_, dh_, target_;
  double loss_ = 0;
  std::int64_t weight_ = 0, correct_ = 0;
  std::function<void(int)> reader_hook_;
  CommThread comm_;
  Stream compute_, update_stream_;
  std::unique_ptr<RoundEngine> engine_;
};

}  // namespace sidestep::testing
