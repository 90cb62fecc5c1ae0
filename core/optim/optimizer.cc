#include "core/optim/optimizer.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/optim/rules.h"

namespace sidestep {
namespace {

/// Written so that NaN is refused too.
void check_setting(bool holds, std::string_view optimizer, std::string_view name,
                   std::string_view range, double found) {
  if (!holds) {
    fail(Exit::settings,
         fmt::format("optimizer {}: expected {} {}, found {}", optimizer, name, range, found));
  }
}

void check_fraction(std::string_view optimizer, std::string_view name, double found) {
  check_setting(found >= 0 && found < 1, optimizer, name, "in [0, 1)", found);
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, ParamStore& store) {
  check_setting(config.weight_decay >= 0, config.name, "weight decay", "of at least 0",
                config.weight_decay);
  if (config.name == "sgd") {
    check_fraction("sgd", "momentum", config.momentum);
    check_setting(!config.nesterov || config.momentum > 0, "sgd", "momentum",
                  "above 0 for Nesterov", config.momentum);
    return make_sgd(config, store);
  }
  if (config.name == "adamw") {
    check_fraction("adamw", "beta1", config.beta1);
    check_fraction("adamw", "beta2", config.beta2);
    check_setting(config.epsilon > 0, "adamw", "epsilon", "above 0", config.epsilon);
    return make_adamw(config, store);
  }
  fail(Exit::settings,
       fmt::format("optimizer: expected one of sgd, adamw, found \"{}\"", config.name));
}

}  // namespace sidestep
