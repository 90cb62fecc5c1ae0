#include "io/checkpoint_seal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <system_error>

#include "core/base/error.h"
#include "core/base/rng.h"

namespace sidestep {

namespace {

constexpr std::size_t kBlock = std::size_t{4} << 20;
constexpr std::uint64_t kStart = 0xcbf29ce484222325u;
constexpr std::string_view kMark = "sidestep seal 1 ";
constexpr std::size_t kTailBytes = 16 + 16 + 1 + 16 + 1;
constexpr std::string_view kHdf5Signature = "\x89HDF\r\n\x1a\n";
constexpr std::string_view kStructure = "-";

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& cause) {
  fail(Exit::checkpoint,
       fmt::format("checkpoint {}: {}; use another checkpoint", path.string(), cause));
}

/// Reads exactly `bytes` at `offset`.
void read_at(int file, const std::filesystem::path& path, std::uint64_t offset, char* to,
             std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = ::pread(file, to, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      refuse(path, fmt::format("cannot read at byte {}: {}", offset,
                               std::generic_category().message(errno)));
    if (n == 0) refuse(path, fmt::format("ends at byte {} while being read", offset));
    to += n;
    offset += static_cast<std::uint64_t>(n);
    bytes -= static_cast<std::size_t>(n);
  }
}

std::string read_text(int file, const std::filesystem::path& path, std::uint64_t offset,
                      std::uint64_t bytes) {
  std::string text(bytes, '\0');
  read_at(file, path, offset, text.data(), text.size());
  return text;
}

std::uint64_t little_endian(const char* bytes) {
  std::uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

/// HDF5's own end of file, from the superblock (version 2 or 3, which we write); 0 if it has none.
std::uint64_t hdf5_end(std::string_view head) {
  const bool known = head.size() >= 48 && (head[8] == 2 || head[8] == 3) && head[9] == 8;
  return known ? little_endian(head.data() + 28) : 0;
}

/// What to make of a file that does not end with a seal.
SealState judge_unsealed(int file, const std::filesystem::path& path, std::uint64_t size) {
  if (size == 0) refuse(path, "the file is empty");
  const std::string head = read_text(file, path, 0, std::min<std::uint64_t>(size, 48));
  if (!head.starts_with(kHdf5Signature)) refuse(path, "not an HDF5 file");
  const std::uint64_t end = hdf5_end(head);
  if (end == 0) refuse(path, "not written by this program, or damaged: no seal at its end");
  if (size < end) refuse(path, fmt::format("cut short: {} bytes of at least {}", size, end));
  if (size > end) refuse(path, "damaged or cut short: its seal is not complete");
  return SealState::edited;
}

void check_part(int file, const std::filesystem::path& path, const SealPart& part,
                std::string& block) {
  std::uint64_t digest = kStart;
  for (std::uint64_t done = 0; done < part.bytes;) {
    block.resize(std::min<std::uint64_t>(kBlock, part.bytes - done));
    read_at(file, path, part.offset + done, block.data(), block.size());
    digest = hash64(block.data(), block.size(), digest);
    done += block.size();
  }
  if (digest == part.digest) return;
  const std::string what = part.path == kStructure
                               ? std::string("its HDF5 structure is damaged")
                               : fmt::format("dataset {} is damaged", part.path);
  refuse(path, fmt::format("{} (digest {:016x}, expected {:016x})", what, digest, part.digest));
}

std::vector<SealPart> parse_table(const std::filesystem::path& path, const std::string& table,
                                  std::uint64_t end) {
  std::vector<SealPart> parts;
  std::uint64_t offset = 0;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    SealPart part;
    std::istringstream in(line);
    in >> part.offset >> part.bytes >> std::hex >> part.digest;
    in.get();
    if (!std::getline(in, part.path) || part.offset != offset || part.bytes > end - offset)
      refuse(path, "its seal is damaged");
    offset += part.bytes;
    parts.push_back(std::move(part));
  }
  if (offset != end) refuse(path, "its seal is damaged");
  return parts;
}

}  // namespace

std::uint64_t block_hash(std::string_view bytes) {
  std::uint64_t digest = kStart;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(kBlock, bytes.size())))
    digest = hash64(bytes.data(), std::min(kBlock, bytes.size()), digest);
  return digest;
}

std::string make_seal(std::string_view image, std::vector<SealPart> datasets) {
  std::ranges::sort(datasets, {}, &SealPart::offset);
  datasets.push_back({image.size(), 0, kStart, ""});  // ends the last structure part
  std::string table;
  std::uint64_t offset = 0;
  for (const SealPart& part : datasets) {
    check(part.offset >= offset && part.bytes <= image.size() - part.offset, "datasets overlap");
    if (const std::uint64_t gap = part.offset - offset; gap > 0)
      table += fmt::format("{} {} {:016x} {}\n", offset, gap, block_hash(image.substr(offset, gap)),
                           kStructure);
    if (!part.path.empty())
      table += fmt::format("{} {} {:016x} {}\n", part.offset, part.bytes, part.digest, part.path);
    offset = part.offset + part.bytes;
  }
  return table + fmt::format("{}{:016x} {:016x}\n", kMark, table.size(), block_hash(table));
}

SealState check_seal(int file, const std::filesystem::path& path, bool with_data) {
  const off_t length = ::lseek(file, 0, SEEK_END);
  if (length < 0) refuse(path, std::generic_category().message(errno));
  const auto size = static_cast<std::uint64_t>(length);
  if (size < kTailBytes) return judge_unsealed(file, path, size);
  const std::string tail = read_text(file, path, size - kTailBytes, kTailBytes);
  if (!tail.starts_with(kMark)) return judge_unsealed(file, path, size);
  std::uint64_t table_bytes = 0, table_digest = 0;
  std::istringstream in(tail.substr(kMark.size()));
  in >> std::hex >> table_bytes >> table_digest;
  if (!in || table_bytes > size - kTailBytes) refuse(path, "its seal is damaged");
  const std::uint64_t end = size - kTailBytes - table_bytes;
  const std::string table = read_text(file, path, end, table_bytes);
  if (block_hash(table) != table_digest) refuse(path, "its seal is damaged");
  std::string block;
  for (const SealPart& part : parse_table(path, table, end))
    if (with_data || part.path == kStructure) check_part(file, path, part, block);
  return SealState::sealed;
}

}  // namespace sidestep
