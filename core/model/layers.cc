#include "core/model/layers.h"

#include <array>
#include <cmath>

#include "core/ops/ops.h"

namespace sidestep::layers {
namespace {

struct WeightAndBias {
  ValueId weight;
  ValueId bias;
};

/// Both start uniform in +-1/sqrt(fan_in), the elements of a weight row (PyTorch's reset_parameters
/// of Linear and Conv2d). Biases do not decay.
WeightAndBias parameters(GraphBuilder& builder, const std::string& name, const Shape& weight) {
  const Init init{Init::Kind::uniform, 1.0 / std::sqrt(static_cast<double>(weight.row_numel()))};
  return {builder.param({name + ".weight", weight, init, true}),
          builder.param({name + ".bias", {weight[0]}, init, false})};
}

}  // namespace

ValueId linear(GraphBuilder& builder, const std::string& name, ValueId x, std::int64_t features) {
  const WeightAndBias p = parameters(builder, name, {features, builder.type(x).shape.row_numel()});
  return builder.apply1(ops::linear, {x, p.weight, p.bias}, {}, name);
}

ValueId conv2d(GraphBuilder& builder, const std::string& name, ValueId x,
               const ConvConfig& config) {
  const std::int64_t in_channels = builder.type(x).shape[3];
  const WeightAndBias p =
      parameters(builder, name, {config.channels, in_channels, config.kernel, config.kernel});
  return builder.apply1(ops::conv2d, {x, p.weight, p.bias},
                        {{"stride", config.stride}, {"padding", config.padding}}, name);
}

ValueId max_pool2d(GraphBuilder& builder, const std::string& name, ValueId x, std::int64_t kernel) {
  // The op's second output, where the largest element was, is for its gradient only.
  const std::array<ValueId, 1> in{x};
  return builder.apply(ops::max_pool2d, in, {{"kernel", kernel}, {"stride", kernel}}, name)[0];
}

ValueId relu(GraphBuilder& builder, ValueId x) { return builder.apply1(ops::relu, {x}); }

ValueId flatten(GraphBuilder& builder, ValueId x) { return builder.apply1(ops::flatten, {x}); }

ModelOutputs classify(GraphBuilder& builder, ValueId logits, ValueId y) {
  const std::array<ValueId, 2> in{logits, y};
  const std::vector<ValueId> out = builder.apply(ops::softmax_xent, in, {}, "loss");
  return {.loss = out[0], .weight = out[1], .correct = out[2], .logits = logits};
}

}  // namespace sidestep::layers
