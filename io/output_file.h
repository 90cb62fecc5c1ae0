// Files that are complete or absent: written beside under a temporary name, flushed to disk,
// renamed. Any thread; one object by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace sidestep {

/// A file being written under the name ".NAME.tmp-HOST-PID" in the folder of `path`. Until
/// publish() returns, an older file of that name is untouched; without publish() the temporary is
/// removed. Every failure is Exit::checkpoint naming path, bytes needed, bytes free and the
/// system's error.
class AtomicFile {
 public:
  /// `bytes_needed` (0 if unknown) is compared with the free space before anything is written.
  explicit AtomicFile(std::filesystem::path path, std::uint64_t bytes_needed = 0);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends. Unbuffered: give it large pieces.
  void write(std::string_view bytes);
  /// Flushes the file, renames it, flushes the folder.
  void publish();

 private:
  [[noreturn]] void fail_write(int system_error);
  void discard() noexcept;

  std::filesystem::path path_, temporary_;
  std::uint64_t needed_, written_ = 0;
  int file_ = -1;
};

/// Exit::checkpoint naming the path and the system's error.
void write_file_atomically(const std::filesystem::path& path, const std::string& text);
/// Fails with `code` naming the path if it is missing, a folder, or no regular file (a pipe would
/// be waited for).
void check_readable_file(const std::filesystem::path& path, Exit code);
std::string read_text_file(const std::filesystem::path& path);

/// Whether an output file that an option names can be written, tested before the first step and
/// leaving nothing behind. Exit::settings if `path` is a folder or no regular file;
/// Exit::checkpoint if it cannot be created. `what` is the option: "--trace".
void check_output_path(const std::filesystem::path& path, std::string_view what);

/// This machine's name as it stands in temporary names and lock files.
std::string host_name();

/// The writer of a temporary, from its name; nothing if `name` is not one of AtomicFile's.
struct TemporaryOwner {
  std::string host;
  std::int64_t pid = 0;
};
std::optional<TemporaryOwner> temporary_owner(std::string_view name);

/// Whether a process of this host still runs; a zombie does not.
bool process_runs(std::int64_t pid);

}  // namespace sidestep
