#include "comm/round_journal.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace sidestep {
namespace {

using Json = nlohmann::ordered_json;

std::uint64_t parse_hex(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size())
    throw std::invalid_argument("\"checksum\" is not hexadecimal");
  return value;
}

/// One number a rank.
std::vector<std::int64_t> numbers(const Json& json, const char* name, std::size_t ranks) {
  auto list = json.at(name).get<std::vector<std::int64_t>>();
  if (list.size() != ranks)
    throw std::invalid_argument(fmt::format("\"{}\" does not cover all ranks", name));
  return list;
}

}  // namespace

std::string to_json(const JournalLine& line) {
  Json json = {{"round", line.round}, {"weight", line.weight}};
  Json claimed = Json::array(), fresh = Json::array(), late = Json::array(), off = Json::array();
  for (const JournalLine::Rank& rank : line.ranks) {
    claimed.push_back(rank.claimed ? 1 : 0);
    fresh.push_back(rank.fresh ? 1 : 0);
    late.push_back(rank.late_round);
    off.push_back(rank.written_off ? 1 : 0);
  }
  json["claimed"] = claimed;
  json["fresh"] = fresh;
  json["late"] = late;
  json["off"] = off;
  if (line.checksum) json["checksum"] = fmt::format("{:016x}", *line.checksum);
  return json.dump();
}

JournalLine parse_journal_line(std::string_view text, std::string_view where) {
  try {
    const Json json = Json::parse(text);
    JournalLine line{
        .round = json.at("round"), .weight = json.at("weight"), .ranks = {}, .checksum = {}};
    const std::size_t ranks = json.at("claimed").size();
    const auto claimed = numbers(json, "claimed", ranks), fresh = numbers(json, "fresh", ranks),
               late = numbers(json, "late", ranks), off = numbers(json, "off", ranks);
    for (std::size_t r = 0; r < ranks; ++r)
      line.ranks.push_back({claimed[r] != 0, fresh[r] != 0, late[r], off[r] != 0});
    if (json.contains("checksum")) line.checksum = parse_hex(json["checksum"].get<std::string>());
    return line;
  } catch (const std::exception& e) {
    fail(Exit::data, fmt::format("{}: expected a line of a round, found \"{}\" ({}); give the file "
                                 "that a run of the quorum family has written",
                                 where, text.substr(0, 200), e.what()));
  }
}

}  // namespace sidestep
