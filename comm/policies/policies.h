// The makers of all presets, for sync_policy.cc. Each fails with Exit::settings for knobs that cannot
// hold.
#pragma once

#include <memory>

#include "comm/sync_policy.h"

namespace sidestep {

std::unique_ptr<SyncPolicy> make_bsp(const PolicyConfig& config);
std::unique_ptr<SyncPolicy> make_balance(const PolicyConfig& config);
std::unique_ptr<SyncPolicy> make_drop(const PolicyConfig& config);
std::unique_ptr<SyncPolicy> make_window(const PolicyConfig& config);
/// local, bmuf, slowmo, diloco, easgd, selsync
std::unique_ptr<SyncPolicy> make_model_preset(const PolicyConfig& config);
/// backup, quorum, majority, solo, ssp
std::unique_ptr<SyncPolicy> make_quorum_preset(const PolicyConfig& config);

/// A measurement made at one step takes effect this many steps later, so that ranks that plan ahead
/// plan alike.
inline constexpr std::int64_t kNotice = 16;

}  // namespace sidestep
