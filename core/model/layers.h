// Layers: an op with its parameters, named and started as PyTorch does. Pure functions that append
// to the builder; main thread, before step 1. A model is a dozen calls of these.
#pragma once

#include <cstdint>
#include <string>

#include "core/graph/executor.h"

namespace sidestep::layers {

struct ConvConfig {
  std::int64_t channels = 1;  ///< of the output
  std::int64_t kernel = 3;    ///< height and width
  std::int64_t stride = 1;
  std::int64_t padding = 0;  ///< zeros on each side
};

/// x [n, in] -> [n, features] with parameters "<name>.weight" [features, in] and "<name>.bias".
ValueId linear(GraphBuilder& builder, const std::string& name, ValueId x, std::int64_t features);

/// x [n, h, w, c] -> [n, h', w', k] with "<name>.weight" [k, c, r, s] and "<name>.bias" [k].
ValueId conv2d(GraphBuilder& builder, const std::string& name, ValueId x, const ConvConfig& config);

/// Largest of each window of kernel x kernel, windows side by side.
ValueId max_pool2d(GraphBuilder& builder, const std::string& name, ValueId x, std::int64_t kernel);

ValueId relu(GraphBuilder& builder, ValueId x);

/// [n, h, w, c] -> [n, c*h*w], PyTorch's order.
ValueId flatten(GraphBuilder& builder, ValueId x);

/// Softmax cross-entropy of logits [n, classes] against the labels y int32 [n].
ModelOutputs classify(GraphBuilder& builder, ValueId logits, ValueId y);

}  // namespace sidestep::layers
