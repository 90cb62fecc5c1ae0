// How a thread waits for something that only polling can tell, without taking a core from the
// compute thread. One per waiting loop, any thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace sidestep {

/// Sleeps for 5 us, then for twice as long each time, up to a limit.
class Backoff {
 public:
  explicit Backoff(int longest_us) : longest_(longest_us) {}

  void pause() { std::this_thread::sleep_for(take(longest_)); }
  /// For a pause that is made in another way, with a limit of its own: how long it may last.
  std::chrono::microseconds take(std::chrono::microseconds longest) {
    const auto now = std::min(next_, longest);
    next_ = std::min(2 * now, longest);
    return now;
  }
  std::chrono::microseconds next() const { return next_; }
  /// After progress: the next result is probably near.
  void reset() { next_ = kFirst; }

 private:
  static constexpr std::chrono::microseconds kFirst{5};
  std::chrono::microseconds longest_;
  std::chrono::microseconds next_ = kFirst;
};

}  // namespace sidestep
