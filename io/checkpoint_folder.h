// The checkpoints/ folder of a run: names, the newest usable file, keep-last-K, leftovers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoint_file.h"

namespace sidestep {

/// 42 of ".../step-00000042.h5"; nothing for any other name.
std::optional<std::int64_t> step_of_checkpoint(const std::filesystem::path& file);

class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}
  /// "step-00000042.h5"
  std::filesystem::path file_of(std::int64_t step) const;
  /// Published files, newest step first.
  std::vector<std::filesystem::path> list() const;
  /// The newest file that reads without damage, with its content. Each damaged one is reported to
  /// `warn` (one line). Nothing usable: Exit::checkpoint saying what was there.
  std::pair<std::filesystem::path, CheckpointContent> latest(
      const std::function<void(const std::string&)>& warn) const;
  /// Removes all but the newest `keep` files (0 keeps all). "best.h5" and other names are neither
  /// counted nor removed.
  void prune(int keep) const;
  /// Renames the files of steps after `step` to "set-aside-step-N.h5" (never over another file), so
  /// that a run which goes on from an earlier step is not mixed with the later files of the line it
  /// leaves. Returns the new names.
  std::vector<std::string> set_aside_after(std::int64_t step) const;
  /// Removes temporaries of processes of this host that no longer run (zombies count as ended) and
  /// those older than a day, of any host.
  void remove_leftovers() const;

 private:
  std::filesystem::path folder_;
};

}  // namespace sidestep
