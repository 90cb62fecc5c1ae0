#include "core/model/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string_view>

#include "core/base/error.h"
#include "core/model/zoo.h"

namespace sidestep {
namespace {

struct ZooEntry {
  std::string_view name;
  ModelOutputs (*build)(const ModelConfig& config, GraphBuilder& builder, std::int64_t batch);
  void (*check)(const ModelConfig& config);
};

constexpr std::array kZoo{
    ZooEntry{"mlp", zoo::mlp, zoo::check_mlp},
    ZooEntry{"lenet", zoo::lenet, zoo::check_lenet},
};

void check_sample(const ModelConfig& config) {
  if (config.height < 1 || config.width < 1 || config.channels < 1) {
    fail(Exit::settings,
         fmt::format("model {}: expected samples of at least 1x1x1 (height, width, channels), "
                     "found {}x{}x{}",
                     config.name, config.height, config.width, config.channels));
  }
  if (config.classes < 2) {
    fail(Exit::settings, fmt::format("model {}: expected at least 2 classes, found {}", config.name,
                                     config.classes));
  }
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ZooEntry& entry : kZoo) names.emplace_back(entry.name);
  return names;
}

ModelBuilder make_model(const ModelConfig& config) {
  for (const ZooEntry& entry : kZoo) {
    if (entry.name != config.name) continue;
    check_sample(config);
    entry.check(config);
    return [config, build = entry.build](GraphBuilder& builder, std::int64_t batch) {
      return build(config, builder, batch);
    };
  }
  fail(Exit::settings, fmt::format("model: expected one of {}, found \"{}\"",
                                   fmt::join(model_names(), ", "), config.name));
}

}  // namespace sidestep
