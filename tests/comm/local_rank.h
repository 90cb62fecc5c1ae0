// One in-process rank that trains a made-up model by hand through any engine: layers of
// element-wise linear regression, loss sum of 0.5 (w x - t)^2. Forward reads the weights and keeps
// the residuals, backward makes gradients of them, layer by layer from the last.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/engine.h"
#include "core/optim/optimizer.h"

namespace sidestep::testing {

inline constexpr int kLocalLayers = 4;
inline constexpr std::int64_t kLocalWidth = 20;
inline constexpr std::size_t kLocalWeights = kLocalLayers * kLocalWidth;

/// The initial weight, input and target of element i; weights come layer by layer.
float local_weight(std::size_t i);
float local_input(std::int64_t sample, std::size_t i);
float local_target(std::int64_t sample, std::size_t i);

struct LocalOptions {
  OptimizerConfig optimizer{.name = "sgd", .momentum = 0};
  StreamMode mode = StreamMode::threaded;
  bool one_stream = false;  ///< updates run on the compute stream
  int max_delay_us = 0;     ///< each layer of backward takes up to this much longer
  std::uint64_t delay_seed = 0;
  double lr = 0.03125;
};

class LocalRank {
 public:
  using Make = std::function<std::unique_ptr<Engine>(ParamStore&, const Optimizer&, CommThread&,
                                                     Stream& compute, Stream& update)>;
  LocalRank(std::unique_ptr<Communicator> comm, const LocalOptions& options, const Make& make);
  ~LocalRank();

  /// Begins a round with its first step, or a further step. Steps count from 1.
  void begin(std::int64_t step);
  void next(std::int64_t step);
  /// Enqueues a micro-batch of samples first, first + 1, ...; its gradients are multiplied.
  void micro_batch(std::int64_t first, std::int64_t samples, bool last = true, float factor = 1);
  /// A whole step of one micro-batch, or of none.
  void step(std::int64_t first, std::int64_t samples, float factor = 1);
  void finish() { engine_->finish(); }

  Engine& engine() { return *engine_; }
  ParamStore& store() { return store_; }
  int rank() const { return comm_.rank(); }
  /// Layer by layer, after everything that was enqueued.
  std::vector<float> weights() { return layers(store_.values()); }
  std::vector<float> layers(const View& flat);
  void set_lr(double lr) { lr_ = lr; }

 private:
  void forward(std::int64_t first, std::int64_t samples);
  void backward(std::int64_t samples, float factor, GradSink& sink);

  const LocalOptions options_;
  double lr_;
  ParamStore store_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<float> input_, residual_;  ///< of the micro-batch: samples by weights
  double loss_ = 0;
  std::int64_t weight_ = 0, correct_ = 0;
  std::uint64_t passes_ = 0;
  CommThread comm_;
  Stream compute_, update_stream_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace sidestep::testing
