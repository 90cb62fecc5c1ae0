#include "io/rank_marks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

namespace sidestep {
namespace {

namespace fs = std::filesystem;

/// The file's content; read by the same program on another day, perhaps another host of its kind.
struct Mark {
  char magic[8];
  std::int64_t rank, step;
  char phase[24];
  char host[72];
  std::int64_t ended;  ///< 1: asked to end
};
constexpr char kMagic[8] = "rankmrk";

std::string describe(const std::vector<Mark>& stopped, std::int64_t furthest, std::size_t others) {
  std::string text;
  constexpr std::size_t kNamed = 4;
  for (const Mark& mark : stopped) {
    if (&mark - stopped.data() == kNamed)
      return text + fmt::format(" and {} more", stopped.size() - kNamed);
    text += fmt::format("{}rank {} on {} stopped in step {} ({})", text.empty() ? "" : "; ", mark.rank,
                        mark.host, mark.step, mark.phase);
  }
  return text + (others > 0 ? fmt::format("; the others had reached step {}", furthest) : "");
}

}  // namespace

RankMark::RankMark(const fs::path& folder, int rank, const std::string& host) {
  const fs::path path = folder / fmt::format("rank-{}", rank);
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return;
  if (::ftruncate(file, sizeof(Mark)) == 0) {
    void* const memory =
        ::mmap(nullptr, sizeof(Mark), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory != MAP_FAILED) memory_ = memory;
  }
  ::close(file);
  if (memory_ == nullptr) return;
  Mark& mark = *static_cast<Mark*>(memory_);
  mark.rank = rank;
  host.copy(mark.host, sizeof(mark.host) - 1);
  set(0, "start");
  std::memcpy(mark.magic, kMagic, sizeof(kMagic));
}

RankMark::~RankMark() {
  if (memory_ != nullptr) ::munmap(memory_, sizeof(Mark));
}

void RankMark::set(std::int64_t step, const char* phase) noexcept {
  if (memory_ == nullptr) return;
  Mark& mark = *static_cast<Mark*>(memory_);
  mark.step = step;
  std::strncpy(mark.phase, phase, sizeof(mark.phase) - 1);
}

std::int64_t* RankMark::ended() const noexcept {
  return memory_ == nullptr ? nullptr : &static_cast<Mark*>(memory_)->ended;
}

std::optional<std::string> read_marks(const fs::path& folder) {
  std::vector<Mark> stopped;
  std::int64_t furthest = 0;
  std::size_t others = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    Mark mark{};
    std::ifstream in(entry.path(), std::ios::binary);
    if (!in.read(reinterpret_cast<char*>(&mark), sizeof(mark))) continue;
    if (std::memcmp(mark.magic, kMagic, sizeof(kMagic)) != 0) continue;
    if (mark.ended == 0) {
      stopped.push_back(mark);
    } else {
      ++others;
      furthest = std::max(furthest, mark.step);
    }
  }
  if (stopped.empty()) return std::nullopt;
  std::ranges::sort(stopped, {}, &Mark::rank);
  return describe(stopped, furthest, others);
}

void remove_marks(const fs::path& folder) noexcept {
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

}  // namespace sidestep
