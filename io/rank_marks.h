// Where each rank is, in a small file that outlives the process: after a job that ended without a word
// the next start can say which rank stopped at which step. A store to mapped memory a step; no system
// call. Each rank owns one mark; main thread, but for *ended(), which a signal handler may set.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace sidestep {

class RankMark {
 public:
  /// Makes `folder`/rank-<r>. Without one (no shared folder on this host) the mark does nothing.
  RankMark(const std::filesystem::path& folder, int rank, const std::string& host);
  ~RankMark();
  RankMark(const RankMark&) = delete;
  RankMark& operator=(const RankMark&) = delete;

  void set(std::int64_t step, const char* phase) noexcept;
  /// To be set to 1 when somebody asks the process to end (SIGTERM) or it ends with an error of its
  /// own: then it is not the one that stopped without a word. Null without a mark.
  std::int64_t* ended() const noexcept;

 private:
  void* memory_ = nullptr;
};

/// What the marks of an earlier job tell: "rank 1 on node3 stopped in step 57 (compute); the others had
/// reached step 58". Nothing if there are none, or all ranks were asked to end.
std::optional<std::string> read_marks(const std::filesystem::path& folder);
void remove_marks(const std::filesystem::path& folder) noexcept;

}  // namespace sidestep
