// The record of who took part in each round of the quorum family, so that a run can be repeated bit
// for bit: one JSON line a round. Knows no files. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sidestep {

struct JournalLine {
  struct Rank {
    bool claimed = false;         ///< had begun its work of this round before the round closed
    bool fresh = false;           ///< that work is in the round's sum
    std::int64_t late_round = 0;  ///< round whose late work is in the sum (or written off); else 0
    bool written_off = false;     ///< the late work was thrown away
    bool operator==(const Rank&) const = default;
  };
  std::int64_t round = 0;
  std::int64_t weight = 0;  ///< applied
  std::vector<Rank> ranks;
  std::optional<std::uint64_t> checksum;  ///< of the weights after the round, at flush rounds
  bool operator==(const JournalLine&) const = default;
};

/// One line without its end: {"round":7,"weight":96,"claimed":[1,1],"fresh":[1,0],"late":[0,5],
/// "off":[0,0],"checksum":"89ab…"}; the checksum in 16 hexadecimal digits, only if there is one.
std::string to_json(const JournalLine& line);
/// Fails with Exit::data for text that is no such line, saying `where` it stands.
JournalLine parse_journal_line(std::string_view text, std::string_view where = "journal");

}  // namespace sidestep
