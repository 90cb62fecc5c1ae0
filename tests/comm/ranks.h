// Runs in-process ranks, each on a thread of its own.
#pragma once

#include <functional>
#include <memory>

#include "comm/communicator.h"
#include "comm/thread_group.h"

namespace sidestep::testing {

/// Calls `rank_main` once a rank, at the same time; rethrows the first failure (by rank) after all
/// have ended. A rank that throws leaves its group, which frees its peers.
void run_ranks(int ranks, const std::function<void(std::unique_ptr<Communicator>)>& rank_main,
               const ThreadGroupOptions& options = {});

}  // namespace sidestep::testing
