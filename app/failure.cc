#include "app/failure.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <new>
#include <thread>

#include "core/base/log.h"

namespace sidestep {
namespace {

std::string on_one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

std::string rank_list(const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t j = i;
    while (j + 1 < ranks.size() && ranks[j + 1] == ranks[j] + 1) ++j;
    parts.push_back(i == j ? std::to_string(ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[j]));
    i = j + 1;
  }
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(parts, ","));
}

void together(Communicator& comm, const std::function<void()>& phase) {
  std::string mine;
  try {
    phase();
  } catch (...) {
    const FailureText failure = describe(std::current_exception());
    mine = fmt::format("{} {}", failure.code, failure.line);
  }
  const auto all = gather_texts(comm, mine);
  std::vector<std::pair<std::string, std::vector<int>>> by_message;  // in order of their first rank
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].empty()) continue;
    auto at = std::find_if(by_message.begin(), by_message.end(),
                           [&](const auto& m) { return m.first == all[r]; });
    if (at == by_message.end()) at = by_message.insert(at, {all[r], {}});
    at->second.push_back(static_cast<int>(r));
  }
  if (by_message.empty()) return;
  const int code = std::stoi(by_message.front().first);
  std::vector<std::string> lines;
  for (const auto& [message, ranks] : by_message) {
    const std::string text = message.substr(message.find(' ') + 1);
    const bool everywhere = ranks.size() == all.size();
    lines.push_back(everywhere ? text : fmt::format("{}: {}", rank_list(ranks), text));
  }
  throw AgreedError(static_cast<Exit>(code), fmt::format("{}", fmt::join(lines, "\n")));
}

FailureText describe(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const AgreedError& error) {
    return {static_cast<int>(error.code()), on_one_line(error.what()), true};
  } catch (const Error& error) {
    std::string line = on_one_line(error.what());
    if (error.code() == Exit::internal)
      line += "; this is a fault of the program: please report it";
    return {static_cast<int>(error.code()), line, false};
  } catch (const std::bad_alloc&) {
    return {static_cast<int>(Exit::device),
            "out of memory on this host; use a smaller --batch, more hosts or fewer ranks a host",
            false};
  } catch (const std::exception& error) {
    return {static_cast<int>(Exit::internal),
            fmt::format("unexpected: {}; this is a fault of the program: please report it",
                        on_one_line(error.what())),
            false};
  } catch (...) {
    return {static_cast<int>(Exit::internal),
            "unexpected exception; this is a fault of the program: please report it", false};
  }
}

int end_job(const std::exception_ptr& failure, int rank, int ranks,
            const std::function<void(int)>& abort) {
  const FailureText text = describe(failure);
  if (text.agreed || ranks == 1) {
    if (rank == 0) log_error(text.line);
    return text.code;
  }
  // A broken exchange is mostly the echo of another rank's failure. That rank aborts the job, so
  // the echo waits a little and is then never heard: the first cause stays the only line.
  constexpr auto kEcho = std::chrono::milliseconds(1500);
  if (text.code == static_cast<int>(Exit::communication)) std::this_thread::sleep_for(kEcho);
  log_error(text.line);
  abort(text.code);
  return text.code;
}

}  // namespace sidestep
