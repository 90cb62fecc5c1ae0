#include "io/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "io/checkpoint_folder.h"
#include "io/output_file.h"

namespace sidestep {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse(const fs::path& path, const std::string& cause) {
  fail(Exit::checkpoint, fmt::format("cannot use --out {}: {}; check its path and permissions, or "
                                     "choose another --out",
                                     path.string(), cause));
}

/// The step in the last complete line of metrics.jsonl; 0 without one. Looks at the last 64 KiB.
std::int64_t last_metrics_step(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  std::string text(65536, '\0');
  const off_t size = ::lseek(fd, 0, SEEK_END);
  const off_t from = std::max<off_t>(0, size - static_cast<off_t>(text.size()));
  const ssize_t n = ::pread(fd, text.data(), text.size(), from);
  ::close(fd);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  while (!text.empty()) {
    const auto newline = text.rfind('\n');
    if (newline == std::string::npos) return 0;
    text.resize(newline);
    const auto begin = text.rfind('\n');
    const auto line = text.substr(begin == std::string::npos ? 0 : begin + 1);
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object() && json.contains("step") && json["step"].is_number_integer())
      return json["step"].get<std::int64_t>();
  }
  return 0;
}

/// "2025-03-01 14:02:59" local time of a file's last change; nothing if there is no such file.
std::optional<std::string> time_of(const fs::path& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  std::tm parts{};
  ::localtime_r(&info.st_mtime, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts);
  return text.data();
}

/// What a run found in the folder looks like: "started 2025-03-01 14:02:59, last step 400". Nothing
/// if there is none. config.ini is written once, at the start.
std::optional<std::string> earlier_run(const RunFolder& folder) {
  const auto checkpoints = CheckpointFolder(folder.checkpoints()).list();
  std::optional<std::string> started = time_of(folder.config());
  if (!started) started = time_of(folder.metrics());
  if (!started && !checkpoints.empty()) started = time_of(checkpoints.back());
  if (!started) return std::nullopt;
  std::int64_t step = last_metrics_step(folder.metrics());
  if (!checkpoints.empty())
    step = std::max(step, step_of_checkpoint(checkpoints.front()).value_or(0));
  return fmt::format("started {}, last step {}", *started, step);
}

void remove_run(const RunFolder& folder) {
  std::vector<fs::path> files = CheckpointFolder(folder.checkpoints()).list();
  files.push_back(folder.checkpoints() / "best.h5");
  for (const fs::path& file :
       {folder.summary(), folder.trace(), folder.ranks(), folder.metrics(), folder.journal(),
        folder.config()})
    files.push_back(file);
  for (const fs::path& file : files) {
    std::error_code error;
    fs::remove(file, error);
    if (error)
      refuse(folder.path(), fmt::format("cannot remove {}: {}", file.string(), error.message()));
  }
}

}  // namespace

RunFolder::RunFolder(fs::path folder, Mode mode) : folder_(std::move(folder)), mode_(mode) {
  std::error_code error;
  const fs::file_status status = fs::status(folder_, error);
  if (fs::exists(status) && !fs::is_directory(status))
    fail(Exit::settings,
         fmt::format("--out {}: expected a folder, found a file; choose another --out",
                     folder_.string()));
  if (mode == Mode::resume && !fs::is_directory(checkpoints(), error))
    fail(Exit::checkpoint,
         fmt::format("--out {} holds no run to resume: no folder {}; check --out, or "
                     "start without --resume",
                     folder_.string(), checkpoints().string()));
  try {
    make_folders();
    claim();
    const auto earlier = earlier_run(*this);
    if (mode == Mode::fresh && earlier)
      fail(Exit::settings,
           fmt::format(
               "--out {} already holds a run ({}); continue it with --resume latest, replace "
               "it with --replace, or choose another --out",
               folder_.string(), *earlier));
    if (mode == Mode::resume && CheckpointFolder(checkpoints()).list().empty() &&
        !fs::exists(checkpoints() / "best.h5", error))
      fail(Exit::checkpoint,
           fmt::format(
               "--out {} holds no checkpoint to resume from ({}); start it anew with --replace",
               folder_.string(), earlier ? *earlier : "no run"));
  } catch (...) {
    release();
    discard_if_empty();
    throw;
  }
}

RunFolder::~RunFolder() {
  release();
  discard_if_empty();
}

void RunFolder::remove_earlier() const {
  if (mode_ == Mode::replace) remove_run(*this);
}

void RunFolder::make_folders() {
  std::vector<fs::path> missing;
  std::error_code ignored;  // a folder that cannot be looked into is reported by mkdir
  for (fs::path at = checkpoints().lexically_normal(); !at.empty() && !fs::exists(at, ignored);
       at = at.parent_path()) {
    missing.push_back(at);
    if (at == at.parent_path()) break;
  }
  std::ranges::reverse(missing);
  for (const fs::path& at : missing) {
    if (::mkdir(at.c_str(), 0777) == 0)
      made_.push_back(at);
    else if (errno != EEXIST)  // another start may have made it just now
      refuse(folder_, fmt::format("cannot make {}: {}", at.string(),
                                  std::generic_category().message(errno)));
  }
}

/// Locks ".lock". The file is removed by the owner at the end, so a lock just taken may be on a
/// file that is no longer there; then try again.
void RunFolder::claim() {
  const fs::path file = folder_ / ".lock";
  for (;;) {
    lock_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock_ < 0) refuse(folder_, std::generic_category().message(errno));
    if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      if (error == EWOULDBLOCK) {
        std::string owner = read_text_file(file);
        if (owner.ends_with('\n')) owner.pop_back();
        ::close(lock_);
        lock_ = -1;
        fail(Exit::checkpoint,
             fmt::format("--out {} is in use by another job ({}); wait for it, or "
                         "choose another --out",
                         folder_.string(), owner.empty() ? "starting" : owner));
      }
      log_warning(
          fmt::format("--out {}: this file system has no locks ({}); start no second job in "
                      "the same folder",
                      folder_.string(), std::generic_category().message(error)));
    }
    struct stat ours {
    }, named{};
    if (::fstat(lock_, &ours) == 0 && ::stat(file.c_str(), &named) == 0 &&
        ours.st_ino == named.st_ino && ours.st_dev == named.st_dev)
      break;
    ::close(lock_);
  }
  const std::string owner = fmt::format("host {}, pid {}\n", host_name(), ::getpid());
  if (::ftruncate(lock_, 0) != 0 ||
      ::pwrite(lock_, owner.data(), owner.size(), 0) != static_cast<ssize_t>(owner.size()))
    refuse(folder_, std::generic_category().message(errno));
}

void RunFolder::release() noexcept {
  if (lock_ < 0) return;
  std::error_code ignored;
  fs::remove(folder_ / ".lock", ignored);
  ::close(lock_);
  lock_ = -1;
}

void RunFolder::discard_if_empty() noexcept {
  try {
    if (made_.empty() || earlier_run(*this)) return;
  } catch (...) {
    return;  // a folder that cannot be looked into stays
  }
  release();
  for (auto at = made_.rbegin(); at != made_.rend(); ++at) ::rmdir(at->c_str());  // only empty ones
  made_.clear();
}

}  // namespace sidestep
