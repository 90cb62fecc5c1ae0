// In-process ranks: communicators of one group that work through shared memory. For tests of what
// is built on communicators; each communicator is used by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace sidestep {

struct ThreadGroupOptions {
  /// Results arrive at each rank up to this much later, by a hash of (seed, rank, collective), and
  /// so do messages.
  int max_delay_us = 0;
  std::uint64_t seed = 0;
};

/// One communicator a rank, in rank order. Sums are taken in rank order, so they are the same bits
/// on each rank and in each run. A rank that aborts, leaves (destroys its communicator) or starts
/// another collective than its peers frees those that wait for it with Exit::communication.
/// Messages to a rank that has left are dropped.
std::vector<std::unique_ptr<Communicator>> make_thread_group(
    int ranks, const ThreadGroupOptions& options = {});

}  // namespace sidestep
