#include "io/checkpoint_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "io/output_file.h"

namespace sidestep {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "step-", kSuffix = ".h5";

/// Entries of the folder; a folder that does not exist holds nothing.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    found.push_back(it->path());
  if (error && error != std::errc::no_such_file_or_directory)
    fail(Exit::checkpoint,
         fmt::format("cannot list checkpoints in {}: {}", folder.string(), error.message()));
  return found;
}

}  // namespace

std::optional<std::int64_t> step_of_checkpoint(const fs::path& file) {
  const std::string name = file.filename().string();
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  const char* begin = name.data() + kPrefix.size();
  const char* end = name.data() + name.size() - kSuffix.size();
  std::int64_t step = 0;
  if (begin >= end) return std::nullopt;
  const auto parsed = std::from_chars(begin, end, step);
  if (parsed.ec != std::errc() || parsed.ptr != end || step < 0) return std::nullopt;
  return step;
}

fs::path CheckpointFolder::file_of(std::int64_t step) const {
  return folder_ / fmt::format("{}{:08}{}", kPrefix, step, kSuffix);
}

std::vector<fs::path> CheckpointFolder::list() const {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  for (fs::path& file : entries(folder_))
    if (const auto step = step_of_checkpoint(file)) found.emplace_back(*step, std::move(file));
  std::ranges::sort(found, std::greater<>{});
  std::vector<fs::path> files;
  for (auto& [step, file] : found) files.push_back(std::move(file));
  return files;
}

std::pair<fs::path, CheckpointContent> CheckpointFolder::latest(
    const std::function<void(const std::string&)>& warn) const {
  const std::vector<fs::path> files = list();
  for (const fs::path& file : files) {
    try {
      return {file, read_checkpoint(file)};
    } catch (const Error& error) {
      warn(fmt::format("skipped: {}", error.what()));
    }
  }
  std::vector<std::string> names;
  for (const fs::path& file : entries(folder_)) names.push_back(file.filename().string());
  std::ranges::sort(names);
  const std::size_t count = names.size();
  if (count > 8) names.resize(8);
  fail(Exit::checkpoint,
       fmt::format("no usable checkpoint in {}: {} of {} are named step-NUMBER.h5 and none can be "
                   "read (found: {}{}); name a file with --resume FILE or start without --resume",
                   folder_.string(), files.size(), count,
                   count == 0 ? std::string("nothing") : fmt::format("{}", fmt::join(names, ", ")),
                   count > 8 ? ", ..." : ""));
}

void CheckpointFolder::prune(int keep) const {
  if (keep <= 0) return;
  const std::vector<fs::path> files = list();
  for (std::size_t i = static_cast<std::size_t>(keep); i < files.size(); ++i) {
    std::error_code ignored;  // a file that stays costs space only; the next prune tries again
    fs::remove(files[i], ignored);
  }
}

std::vector<std::string> CheckpointFolder::set_aside_after(std::int64_t step) const {
  std::vector<std::string> names;
  for (const fs::path& file : list()) {
    if (*step_of_checkpoint(file) <= step) continue;
    fs::path target = folder_ / ("set-aside-" + file.filename().string());
    for (int n = 2; fs::exists(target); ++n)
      target = folder_ / fmt::format("set-aside-{}-{}", n, file.filename().string());
    std::error_code error;
    fs::rename(file, target, error);
    if (error)
      fail(Exit::checkpoint, fmt::format("cannot rename {} to {}: {}", file.string(),
                                         target.filename().string(), error.message()));
    names.push_back(target.filename().string());
  }
  return names;
}

void CheckpointFolder::remove_leftovers() const {
  const std::string host = host_name();
  for (const fs::path& file : entries(folder_)) {
    const auto owner = temporary_owner(file.filename().string());
    if (!owner) continue;
    std::error_code error;
    const auto written = fs::last_write_time(file, error);
    if (error) continue;  // gone meanwhile
    const bool old = fs::file_time_type::clock::now() - written > std::chrono::hours(24);
    const bool ended = owner->host == host && !process_runs(owner->pid);
    if (old || ended) fs::remove(file, error);
  }
}

}  // namespace sidestep
