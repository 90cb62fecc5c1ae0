// A recorded PyTorch run (tests/e2e/golden) and the same run by the program's own parts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/graph/executor.h"
#include "core/model/model.h"
#include "core/optim/optimizer.h"

namespace sidestep::golden {

struct Parameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t fan_in = 0;
  double gradient_norm = 0;      ///< of the mean loss's gradient, all elements
  std::vector<double> gradient;  ///< m elements, number k at index floor(k * size / m)
};

struct Golden {
  ModelConfig model;
  OptimizerConfig optimizer;
  std::int64_t batch = 0, samples = 0;
  double lr = 0;
  double spread = 0;  ///< how far PyTorch is from itself: largest absolute difference of a loss
  double first_loss = 0;
  std::vector<double> losses;
  std::vector<Parameter> parameters;
};

/// Reads one model's file and picks one optimizer's curve.
Golden load(const std::string& model, const std::string& optimizer);

/// Trains as the file says, from the formulas in record_golden.py.
class Training {
 public:
  /// `optimizer` and `lr` are usually those of the file; other ones are for negative controls.
  Training(const Golden& golden, const OptimizerConfig& optimizer, double lr);

  /// Forward and backward of the next batch; returns its mean loss.
  double compute();
  /// Updates the weights from the last compute().
  void update();
  ParamStore& params() { return executor_.params(); }

 private:
  void set_weights();
  void set_batch();

  const Golden& golden_;
  double lr_;
  Executor executor_;
  std::unique_ptr<Optimizer> optimizer_;
  Stream stream_;
  std::int64_t step_ = 0;
};

/// The losses of as many steps as the file holds.
std::vector<double> train(Training& training, std::size_t steps);

/// Largest absolute difference; the lengths are equal.
double distance(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace sidestep::golden
