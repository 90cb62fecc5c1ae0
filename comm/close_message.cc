#include "comm/close_message.h"

#include <algorithm>
#include <bit>

namespace sidestep {
namespace {

constexpr int kRanksPerWord = 32;
constexpr int kRanksPerPart = static_cast<int>(Message{}.words.size()) * kRanksPerWord;

std::size_t word_of(int rank) {
  return static_cast<std::size_t>(rank % kRanksPerPart / kRanksPerWord);
}
int shift_of(int rank) { return 2 * (rank % kRanksPerWord); }

}  // namespace

int parts_for(int ranks) { return (ranks + kRanksPerPart - 1) / kRanksPerPart; }
int part_of(int rank) { return rank / kRanksPerPart; }

Message close_part(std::int64_t round, std::span<const std::uint8_t> directives, int part) {
  Message message{.kind = MessageKind::close, .from = 0, .round = round};
  const int begin = part * kRanksPerPart;
  const int end = std::min(static_cast<int>(directives.size()), begin + kRanksPerPart);
  for (int rank = begin; rank < end; ++rank) {
    const std::uint64_t bits = directives[static_cast<std::size_t>(rank)];
    std::int64_t& word = message.words[word_of(rank)];
    word = std::bit_cast<std::int64_t>(std::bit_cast<std::uint64_t>(word) | bits << shift_of(rank));
  }
  return message;
}

std::uint8_t bits_of(const Message& message, int rank) {
  const auto word = std::bit_cast<std::uint64_t>(message.words[word_of(rank)]);
  return static_cast<std::uint8_t>(word >> shift_of(rank) & 3);
}

}  // namespace sidestep
