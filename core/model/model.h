// The model zoo: a builder per name. See "add a model" in the README.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/executor.h"

namespace sidestep {

struct ModelConfig {
  std::string name = "lenet";             ///< "mlp" or "lenet"
  std::int64_t height = 28, width = 28, channels = 1;  ///< of a sample
  std::int64_t classes = 10;
  std::vector<std::int64_t> hidden = {1024, 1024};     ///< mlp: widths of the hidden layers
};

/// Names of all models, for help and errors.
std::vector<std::string> model_names();

/// Inputs "x": float32 [batch, height, width, channels], "y": int32 [batch].
/// Parameter names are PyTorch's: mlp "fc1.weight", "fc1.bias", ...; lenet conv1, conv2, fc1, fc2,
/// fc3. Weights start as PyTorch's Linear and Conv2d do: uniform in +-1/sqrt(fan_in).
/// Fails with Exit::settings for an unknown name (nearest valid name as a hint is the caller's) or
/// a sample size that does not fit the model.
ModelBuilder make_model(const ModelConfig& config);

}  // namespace sidestep
