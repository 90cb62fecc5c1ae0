// The presets that take a fixed number of local steps, or vote on it, and then exchange models. One
// row each; sources are named in the README's table of policies.
#include <fmt/format.h>

#include <algorithm>

#include "comm/policies/policies.h"
#include "core/base/error.h"

namespace sidestep {
namespace {

struct Row {
  const char* name;
  ModelRule rule;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      {"local", {.steps = 8}},
      {"bmuf", {.steps = 8, .outer = {.lr = 1, .momentum = 0.5}}},
      {"slowmo", {.steps = 8, .outer = {.lr = 1, .momentum = 0.5, .by_lr = true}}},
      {"diloco",
       {.steps = 30,
        .outer = {.lr = 0.7, .momentum = 0.9, .nesterov = true},
        .local_state = LocalState::keep}},
      {"easgd", {.steps = 8, .elastic = true, .local_state = LocalState::keep}},
      // An exchange after every step, as in the first steps, must not take the momentum away.
      {"selsync", {.steps = 100, .vote = true, .local_state = LocalState::keep}},
  };
  return table;
}

LocalState local_state_from(const std::string& text, LocalState standard) {
  if (text == "reset") return LocalState::reset;
  if (text == "keep") return LocalState::keep;
  return text == "average" ? LocalState::average : standard;
}

ModelRule rule_from(const PolicyConfig& c, ModelRule rule) {
  const bool outer = c.name == "bmuf" || c.name == "slowmo" || c.name == "diloco";
  if (c.sync_every > 0) rule.steps = c.sync_every;
  if (rule.vote) rule.steps = c.sync_max;
  if (outer && c.outer_lr > 0) rule.outer.lr = c.outer_lr;
  if (outer && c.outer_momentum >= 0) rule.outer.momentum = c.outer_momentum;
  if (outer && c.nesterov != "auto") rule.outer.nesterov = c.nesterov == "on";
  rule.local_state = local_state_from(c.local_state, rule.local_state);
  if (rule.elastic) rule.elastic_alpha = c.easgd_alpha > 0 ? c.easgd_alpha : 0.9 / c.ranks;
  if (rule.elastic && rule.elastic_alpha * c.ranks > 1)
    fail(Exit::settings,
         fmt::format("--easgd-alpha: expected at most 1 over the {} ranks ({:.4g}), found {}; more "
                     "makes the centre diverge",
                     c.ranks, 1.0 / c.ranks, rule.elastic_alpha));
  return rule;
}

class ModelPreset final : public SyncPolicy {
 public:
  ModelPreset(std::string name, const ModelRule& rule) : name_(std::move(name)), rule_(rule) {}
  std::string_view name() const override { return name_; }
  Family family() const override { return Family::model; }
  ModelRule model_rule() const override { return rule_; }
  void plan(const StepInfo& info, WorkPlan& plan) override {
    even_shares(info.global_batch, info.ranks, plan.shares);
  }

 private:
  std::string name_;
  ModelRule rule_;
};

}  // namespace

std::unique_ptr<SyncPolicy> make_model_preset(const PolicyConfig& config) {
  const auto row = std::ranges::find(rows(), config.name, [](const Row& r) { return std::string(r.name); });
  check(row != rows().end(), "a model preset is in the table");
  return std::make_unique<ModelPreset>(config.name, rule_from(config, row->rule));
}

}  // namespace sidestep
