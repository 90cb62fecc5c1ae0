#include "io/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>

#include "core/base/error.h"

namespace sidestep {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kTemporaryMark = ".tmp-";

std::string system_text(int error) { return std::generic_category().message(error); }

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

std::optional<std::uint64_t> free_bytes(const fs::path& folder) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) return std::nullopt;
  return std::uint64_t{info.f_bavail} * info.f_frsize;
}

/// Makes the rename itself survive a power failure. Some file systems refuse to flush a folder;
/// the file's own content is on disk by then, so that is no failure.
void flush_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

AtomicFile::AtomicFile(fs::path path, std::uint64_t bytes_needed)
    : path_(std::move(path)), needed_(bytes_needed) {
  const fs::path folder = folder_of(path_);
  temporary_ = folder / fmt::format(".{}{}{}-{}", path_.filename().string(), kTemporaryMark,
                                    host_name(), ::getpid());
  if (const auto available = free_bytes(folder); available && *available < needed_)
    fail_write(ENOSPC);
  file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) fail_write(errno);
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  if (file_ < 0) return;
  ::close(file_);
  file_ = -1;
  ::unlink(temporary_.c_str());
}

void AtomicFile::fail_write(int system_error) {
  discard();  // first, so that the free space told is what a second attempt would find
  const auto available = free_bytes(folder_of(path_));
  const bool space = system_error == ENOSPC || system_error == EDQUOT || system_error == EFBIG;
  const std::string_view remedy =
      space ? "free space or raise the quota or file size limit, or choose another place"
            : "check that the folder exists and may be written";
  fail(Exit::checkpoint,
       fmt::format("cannot write {}: {} ({} bytes needed, {} bytes free); {}", path_.string(),
                   system_text(system_error), std::max(needed_, written_),
                   available ? fmt::format("{}", *available) : "unknown", remedy));
}

void AtomicFile::write(std::string_view bytes) {
  check(file_ >= 0, "write to a closed file");
  while (!bytes.empty()) {
    // Linux writes at most 2 GiB a call.
    const ssize_t n = ::write(file_, bytes.data(), std::min(bytes.size(), std::size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      written_ += bytes.size();
      fail_write(n < 0 ? errno : ENOSPC);
    }
    bytes.remove_prefix(static_cast<std::size_t>(n));
    written_ += static_cast<std::uint64_t>(n);
  }
}

void AtomicFile::publish() {
  check(file_ >= 0, "publish of a closed file");
  if (::fsync(file_) != 0) fail_write(errno);
  // Network file systems report a full disk here at the latest.
  const int closed = ::close(file_);
  const int close_error = errno;
  file_ = -1;
  if (closed != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = closed != 0 ? close_error : errno;
    ::unlink(temporary_.c_str());
    fail_write(error);
  }
  flush_folder(folder_of(path_));
}

void write_file_atomically(const fs::path& path, const std::string& text) {
  AtomicFile file(path, text.size());
  file.write(text);
  file.publish();
}

void check_readable_file(const fs::path& path, Exit code) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_regular_file(status)) return;
  std::string found = error ? error.message() : "something that is no regular file";
  if (status.type() == fs::file_type::not_found) found = "No such file or directory";
  if (fs::is_directory(status)) found = "a folder";
  fail(code, fmt::format("{}: expected a file that can be read, found: {}", path.string(), found));
}

std::string read_text_file(const fs::path& path) {
  const auto refuse = [&](int error) {
    fail(Exit::checkpoint, fmt::format("cannot read {}: {}", path.string(), system_text(error)));
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) refuse(errno);
  std::string text;
  std::array<char, 65536> block;
  for (;;) {
    const ssize_t n = ::read(fd, block.data(), block.size());
    if (n > 0) text.append(block.data(), static_cast<std::size_t>(n));
    if (n == 0) break;
    if (n < 0 && errno != EINTR) {
      const int error = errno;
      ::close(fd);
      refuse(error);
    }
  }
  ::close(fd);
  return text;
}

void check_output_path(const fs::path& path, std::string_view what) {
  struct stat info {};
  if (path.empty())
    fail(Exit::settings, fmt::format("{}: the path is empty; give a file name", what));
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    fail(Exit::settings,
         fmt::format("{} {}: expected a file, found {}; give a file name", what, path.string(),
                     S_ISDIR(info.st_mode) ? "a folder" : "a device, pipe or socket"));
  if (!path.has_filename())
    fail(Exit::settings,
         fmt::format("{} {}: the path ends in a slash; give a file name", what, path.string()));
  try {
    AtomicFile probe(path);  // the temporary is removed again
  } catch (const Error& error) {
    fail(Exit::checkpoint, fmt::format("{}: {}", what, error.what()));
  }
}

std::optional<TemporaryOwner> temporary_owner(std::string_view name) {
  const auto mark = name.rfind(kTemporaryMark);
  if (!name.starts_with('.') || mark == std::string_view::npos) return std::nullopt;
  const std::string_view owner = name.substr(mark + kTemporaryMark.size());
  const auto dash = owner.rfind('-');  // host names hold dashes, numbers do not
  if (dash == std::string_view::npos) return std::nullopt;
  TemporaryOwner result{std::string(owner.substr(0, dash)), 0};
  const char* end = owner.data() + owner.size();
  const auto parsed = std::from_chars(owner.data() + dash + 1, end, result.pid);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return result;
}

bool process_runs(std::int64_t pid) {
  // Unlike kill(pid, 0), the link to the executable is gone as soon as a process is a zombie.
  char ignored;
  const ssize_t n = ::readlink(fmt::format("/proc/{}/exe", pid).c_str(), &ignored, 1);
  return n >= 0 || errno == EACCES || errno == EPERM;  // another user's process runs
}

}  // namespace sidestep
