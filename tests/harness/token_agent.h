// An agent that passes a token around the ranks.
#pragma once

#include <atomic>

#include "comm/comm_agent.h"
#include "comm/communicator.h"

namespace sidestep::testing {

/// Rank 0 sends it off; it is over for a rank when the token has come by `laps` times, though a
/// rank still has to pass it on: the last poll of an agent that is removed does.
class TokenAgent final : public CommAgent {
 public:
  TokenAgent(int rank, int size, int laps) : rank_(rank), size_(size), laps_(laps) {
    held_ = rank == 0;
  }
  bool finished() const { return visits_ == laps_; }

  bool poll(Communicator& control) override {
    if (!held_) return false;
    held_ = false;
    control.send((rank_ + 1) % size_, {.kind = MessageKind::arrival});
    return true;
  }
  bool take(const Message& message) override {
    if (message.kind != MessageKind::arrival) return false;
    const int visits = visits_ + 1;
    held_ = rank_ != 0 || visits < laps_;
    visits_ = visits;
    return true;
  }
  int idle_us() const override { return 200; }

 private:
  const int rank_, size_, laps_;
  bool held_;
  std::atomic<int> visits_{0};
};

}  // namespace sidestep::testing
