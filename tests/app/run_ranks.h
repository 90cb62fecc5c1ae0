// Runs a function as each of several in-process ranks.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "comm/thread_group.h"

namespace sidestep {

inline void run_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  auto group = make_thread_group(ranks);
  std::vector<std::thread> threads;
  for (auto& comm : group) threads.emplace_back([&body, &comm] { body(*comm); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace sidestep
