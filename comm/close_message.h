// How the closing of a round tells every rank what it says of it: two bits a rank, in as many
// messages as that takes. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "comm/message.h"

namespace sidestep {

/// Messages that a close of so many ranks takes, sent to each rank in order.
int parts_for(int ranks);
/// Which of them (from 0) holds a rank's bits.
int part_of(int rank);
/// One of them; `directives` by rank, two bits each.
Message close_part(std::int64_t round, std::span<const std::uint8_t> directives, int part);
/// A rank's bits in the message that holds them.
std::uint8_t bits_of(const Message& message, int rank);

}  // namespace sidestep
