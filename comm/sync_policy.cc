#include "comm/sync_policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/policies/policies.h"
#include "core/base/error.h"

namespace sidestep {
namespace {

struct Preset {
  const char* name;
  std::unique_ptr<SyncPolicy> (*make)(const PolicyConfig& config);
};
constexpr Preset kPresets[] = {
    {"bsp", make_bsp},
    {"balance", make_balance},
    {"drop", make_drop},
    {"local", make_model_preset},
    {"bmuf", make_model_preset},
    {"slowmo", make_model_preset},
    {"diloco", make_model_preset},
    {"easgd", make_model_preset},
    {"selsync", make_model_preset},
    {"window", make_window},
    {"backup", make_quorum_preset},
    {"quorum", make_quorum_preset},
    {"majority", make_quorum_preset},
    {"solo", make_quorum_preset},
    {"ssp", make_quorum_preset},
};

}  // namespace

std::unique_ptr<SyncPolicy> make_policy(const PolicyConfig& config) {
  for (const Preset& preset : kPresets)
    if (config.name == preset.name) return preset.make(config);
  fail(Exit::settings, fmt::format("--policy: expected one of {}, found '{}'",
                                   fmt::join(policy_names(), ", "), config.name));
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

void even_shares(std::int64_t batch, int ranks, std::vector<std::int64_t>& shares) {
  check(batch >= 0 && ranks > 0, "shares of a batch over ranks");
  shares.resize(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r)
    shares[static_cast<std::size_t>(r)] = batch / ranks + (r < batch % ranks ? 1 : 0);
}

}  // namespace sidestep
