#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/model/layers.h"
#include "core/model/zoo.h"

namespace sidestep::zoo {

void check_lenet(const ModelConfig& config) {
  // 12 -> pool 6 -> conv2 2 -> pool 1
  if (std::min(config.height, config.width) < 12) {
    fail(Exit::settings,
         fmt::format("model lenet: expected samples of at least 12x12, found {}x{}; use mlp",
                     config.height, config.width));
  }
}

ModelOutputs lenet(const ModelConfig& config, GraphBuilder& builder, std::int64_t batch) {
  GraphBuilder& b = builder;
  ValueId x = b.input("x", {{batch, config.height, config.width, config.channels}});
  const ValueId y = b.input("y", {{batch}, DType::i32});
  x = layers::conv2d(b, "conv1", x, {.channels = 6, .kernel = 5, .padding = 2});
  x = layers::max_pool2d(b, "pool1", layers::relu(b, x), 2);
  x = layers::conv2d(b, "conv2", x, {.channels = 16, .kernel = 5});
  x = layers::max_pool2d(b, "pool2", layers::relu(b, x), 2);
  x = layers::flatten(b, x);
  x = layers::relu(b, layers::linear(b, "fc1", x, 120));
  x = layers::relu(b, layers::linear(b, "fc2", x, 84));
  x = layers::linear(b, "fc3", x, config.classes);
  return layers::classify(b, x, y);
}

}  // namespace sidestep::zoo
