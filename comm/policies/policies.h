// The makers of all presets, for sync_policy.cc.
#pragma once

#include <memory>

#include "comm/sync_policy.h"

namespace sidestep {

std::unique_ptr<SyncPolicy> make_bsp();

}  // namespace sidestep
