// A short wait before a thread blocks: most waits of a training step are over within microseconds,
// less than a sleep and a wake-up cost. Any thread.
#pragma once

#include <chrono>
#include <thread>

namespace sidestep {

/// Polls `ready` for about 20 us, giving way to other threads of a busy core; its last result.
template <class Ready>
bool spin_briefly(Ready ready) {
  constexpr std::chrono::microseconds kSpin{20};
  if (ready()) return true;
  const auto end = std::chrono::steady_clock::now() + kSpin;
  while (std::chrono::steady_clock::now() < end) {
    if (ready()) return true;
    std::this_thread::yield();
  }
  return ready();
}

}  // namespace sidestep
