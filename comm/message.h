// Small control messages between ranks: fixed size, never part of a collective. Comm thread only.
#pragma once

#include <array>
#include <cstdint>

namespace sidestep {

/// What a message is about. Messages of one sender arrive in the order in which they were sent.
enum class MessageKind : std::int64_t { heartbeat = 1, arrival = 2, close = 3, park = 4 };

struct Message {
  MessageKind kind = MessageKind::heartbeat;
  std::int64_t from = 0;    ///< the sender's rank; filled in by send()
  std::int64_t round = 0;
  std::array<std::int64_t, 5> words{};  ///< meaning by kind
};
static_assert(sizeof(Message) == 64);

/// Messages of one rank that may be on their way at the same time.
inline constexpr int kMessagesInFlight = 1024;

}  // namespace sidestep
