#include "app/agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <sstream>

#include "app/failure.h"
#include "app/options.h"
#include "app/versions.h"
#include "core/base/rng.h"

namespace sidestep {
namespace {

// Names and values hold no control characters (the option table refuses them).
std::string pack(const Facts& facts) {
  std::string text;
  for (const auto& [name, value] : facts) text += name + '\t' + value + '\n';
  return text;
}

Facts unpack(const std::string& text) {
  Facts facts;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const auto tab = line.find('\t');
    facts.emplace_back(line.substr(0, tab), line.substr(tab + 1));
  }
  return facts;
}

std::string value_of(const Facts& facts, const std::string& name) {
  for (const auto& [key, value] : facts) {
    if (key == name) return '"' + value + '"';
  }
  return "absent";
}

}  // namespace

std::string text_digest(std::string_view text) {
  return fmt::format("{:016x}", hash64(text.data(), text.size()));
}

std::string differences(const std::vector<Facts>& by_rank) {
  std::vector<std::string> names;
  for (const Facts& facts : by_rank) {
    for (const auto& [name, value] : facts) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  std::string text;
  for (const std::string& name : names) {
    std::map<std::string, std::vector<int>> ranks_by_value;
    for (std::size_t r = 0; r < by_rank.size(); ++r) {
      ranks_by_value[value_of(by_rank[r], name)].push_back(static_cast<int>(r));
    }
    if (ranks_by_value.size() < 2) continue;
    std::vector<std::string> parts;
    for (const auto& [value, ranks] : ranks_by_value) {
      parts.push_back(fmt::format("{} on {}", value, rank_list(ranks)));
    }
    text += fmt::format("\n  {}: {}", name, fmt::join(parts, ", "));
  }
  return text;
}

void agree(Communicator& comm, const Facts& facts) {
  const std::string mine = pack(facts);
  const auto digests = gather_texts(comm, text_digest(mine));
  if (std::equal(digests.begin() + 1, digests.end(), digests.begin())) return;
  std::vector<Facts> by_rank;
  for (const std::string& text : gather_texts(comm, mine)) by_rank.push_back(unpack(text));
  throw AgreedError(
      Exit::settings,
      "ranks disagree: expected the same settings, model, data and build on all ranks, found "
      "differences; start all ranks with one command line and one build:" +
          differences(by_rank));
}

void agree_on_seed(Communicator& comm, Settings& settings) {
  const OptionSpec* spec = find_option("seed");
  // 32 bits: short enough to type, and exact wherever numbers are doubles.
  const std::string drawn =
      broadcast_text(comm, comm.rank() == 0 ? std::to_string(std::random_device{}()) : "", 0);
  if (settings.seed < 0) set_option(settings, *spec, drawn, Origin::drawn, "drawn seed");
}

Facts build_facts() {
  Facts facts{{"program", program_version()}};
  std::ifstream self("/proc/self/exe", std::ios::binary);
  if (self) {
    facts.emplace_back("build", text_digest(std::string(std::istreambuf_iterator<char>(self), {})));
  }
  for (const LibraryVersion& library : library_versions())
    facts.emplace_back(library.name, library.loaded);
  return facts;
}

}  // namespace sidestep
