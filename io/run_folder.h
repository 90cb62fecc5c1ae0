// --out DIR: everything a run leaves. Checked and claimed at start by rank 0, before data is read.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace sidestep {

class RunFolder {
 public:
  enum class Mode { fresh, resume, replace };
  /// Checks that the folder can hold a run and creates it (with checkpoints/).
  /// fresh: Exit::settings if it already holds a run (naming its start time, last step and the
  /// options that continue or replace it) or is not a folder; Exit::checkpoint if it cannot be
  /// created or written. replace: an earlier run may be there, until remove_earlier(). A second job
  /// in the same folder is refused (lock file with flock; Exit::checkpoint naming host and pid).
  /// resume: Exit::checkpoint unless the folder holds a run with a published checkpoint.
  RunFolder(std::filesystem::path folder, Mode mode);
  /// Gives the folder free, after discard_if_empty().
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  /// Removes the folders that the constructor made if nothing was written into them, so that a
  /// start that failed leaves nothing. For ends of the process that run no destructors.
  void discard_if_empty() noexcept;

  /// In mode replace: removes the earlier run's own files. For the moment when all that the new run
  /// needs has been checked, so that a start that fails costs nothing. Exit::checkpoint.
  void remove_earlier() const;

  const std::filesystem::path& path() const { return folder_; }
  std::filesystem::path config() const { return folder_ / "config.ini"; }
  std::filesystem::path metrics() const { return folder_ / "metrics.jsonl"; }
  std::filesystem::path ranks() const { return folder_ / "ranks.jsonl"; }
  std::filesystem::path journal() const { return folder_ / "journal.jsonl"; }
  /// Where each rank is (io/rank_marks.h); there only while a job runs, or after one that was killed.
  std::filesystem::path marks() const { return marks_in(folder_); }
  static std::filesystem::path marks_in(const std::filesystem::path& folder) {
    return folder / ".ranks";
  }
  std::filesystem::path trace() const { return folder_ / "trace.json"; }
  std::filesystem::path summary() const { return folder_ / "summary.json"; }
  std::filesystem::path checkpoints() const { return folder_ / "checkpoints"; }

 private:
  void claim();
  void release() noexcept;
  void make_folders();

  std::filesystem::path folder_;
  Mode mode_;
  std::vector<std::filesystem::path> made_;  ///< by us, outermost first
  int lock_ = -1;
};

}  // namespace sidestep
