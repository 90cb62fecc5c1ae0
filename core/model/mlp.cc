#include <fmt/format.h>

#include "core/base/error.h"
#include "core/model/layers.h"
#include "core/model/zoo.h"

namespace sidestep::zoo {

void check_mlp(const ModelConfig& config) {
  for (const std::int64_t width : config.hidden) {
    if (width < 1) {
      fail(Exit::settings,
           fmt::format("model mlp: expected hidden widths of at least 1, found {}", width));
    }
  }
}

ModelOutputs mlp(const ModelConfig& config, GraphBuilder& builder, std::int64_t batch) {
  ValueId x = builder.input("x", {{batch, config.height, config.width, config.channels}});
  const ValueId y = builder.input("y", {{batch}, DType::i32});
  x = layers::flatten(builder, x);
  int layer = 1;
  for (const std::int64_t width : config.hidden) {
    x = layers::relu(builder, layers::linear(builder, fmt::format("fc{}", layer++), x, width));
  }
  x = layers::linear(builder, fmt::format("fc{}", layer), x, config.classes);
  return layers::classify(builder, x, y);
}

}  // namespace sidestep::zoo
