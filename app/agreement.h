// What all ranks must agree on before the first step: settings, model, data, build. Main thread,
// while the comm thread does not run.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/settings.h"
#include "comm/communicator.h"

namespace sidestep {

/// (name, value), in the same order on every rank unless something is wrong.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Compares a digest of the facts over the ranks; if they differ, throws
/// AgreedError(Exit::settings) on every rank, listing each differing name with its values and the
/// ranks that have them.
void agree(Communicator& comm, const Facts& facts);

/// Each rank's facts, by rank, to the text of that list; empty if all are equal.
std::string differences(const std::vector<Facts>& by_rank);

/// Draws the seed on rank 0 if none was given, and gives it to all ranks.
void agree_on_seed(Communicator& comm, Settings& settings);

/// Program version, a digest of the executable, and loaded library versions.
Facts build_facts();

/// hash64 of a text, as 16 hex digits.
std::string text_digest(std::string_view text);

}  // namespace sidestep
