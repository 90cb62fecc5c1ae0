// One builder and one check a model; model.cc lists them. Pure; any thread.
#pragma once

#include <cstdint>

#include "core/model/model.h"

namespace sidestep::zoo {

/// Flatten, then linear and relu for each hidden width, then a linear layer to the classes.
ModelOutputs mlp(const ModelConfig& config, GraphBuilder& builder, std::int64_t batch);
/// Fails with Exit::settings for a width below 1.
void check_mlp(const ModelConfig& config);

/// LeNet-5 (LeCun et al. 1998) as it is used today: relu, max pooling, first convolution padded so
/// that 28x28 gives the paper's 400 features before fc1.
ModelOutputs lenet(const ModelConfig& config, GraphBuilder& builder, std::int64_t batch);
/// Fails with Exit::settings for samples below 12x12, which leave nothing to pool.
void check_lenet(const ModelConfig& config);

}  // namespace sidestep::zoo
