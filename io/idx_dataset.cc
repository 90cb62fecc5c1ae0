#include "io/idx_dataset.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "core/base/error.h"
#include "io/output_file.h"
#include "io/data_checks.h"
#include "io/memory_dataset.h"

namespace sidestep {
namespace {

namespace fs = std::filesystem;

struct CloseGzip {
  void operator()(gzFile_s* file) const { gzclose_r(file); }
};
using GzipFile = std::unique_ptr<gzFile_s, CloseGzip>;

constexpr std::size_t kBlock = std::size_t{4} << 20;

/// Opens for reading; zlib passes a file without gzip's first bytes through as it is.
GzipFile open_gzip(const fs::path& path) {
  check_readable_file(path, Exit::data);
  errno = 0;
  GzipFile file(gzopen(path.c_str(), "rb"));
  if (!file)
    fail(Exit::data, fmt::format("{}: expected a file that can be read, found: {}", path.string(),
                                 errno == 0 ? "too little memory" : std::strerror(errno)));
  gzbuffer(file.get(), 1u << 17);
  return file;
}

/// Reads up to `count` bytes; less only at the end. Damaged or cut gzip data is Exit::data.
std::size_t read_bytes(const GzipFile& file, const fs::path& path, std::uint8_t* to,
                       std::size_t count) {
  const int found = gzread(file.get(), to, static_cast<unsigned>(count));
  int problem = Z_OK;
  const char* text = gzerror(file.get(), &problem);
  if (found < 0 || (problem != Z_OK && problem != Z_STREAM_END))
    fail(Exit::data, fmt::format("{}: expected complete gzip data, found: {}; the file is damaged "
                                 "or truncated, fetch it again",
                                 path.string(), problem == Z_ERRNO ? std::strerror(errno) : text));
  return static_cast<std::size_t>(found);
}

/// "0x3c 0x21 0x44 0x4f ('<!DO')"
std::string show(std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) return "an empty file";
  std::string hex, text;
  for (const std::uint8_t b : bytes) {
    hex += fmt::format("0x{:02x} ", b);
    text += std::isprint(b) != 0 ? static_cast<char>(b) : '.';
  }
  return fmt::format("{}('{}')", hex, text);
}

/// The extent after a header that is what it should be, and the number of bytes it stands for.
std::pair<std::vector<std::int64_t>, std::size_t> read_header(const GzipFile& file,
                                                              const fs::path& path,
                                                              int dimensions) {
  std::array<std::uint8_t, 4> magic{};
  const std::size_t found = read_bytes(file, path, magic.data(), magic.size());
  const std::array<std::uint8_t, 4> wanted{0, 0, 8, static_cast<std::uint8_t>(dimensions)};
  if (found < magic.size() || magic != wanted)
    fail(Exit::data,
         fmt::format("{}: expected an IDX file of unsigned bytes with {} dimension{}, raw or gzip "
                     "(first bytes {}), found {}",
                     path.string(), dimensions, dimensions == 1 ? "" : "s", show(wanted),
                     show(std::span(magic).first(found))));
  std::vector<std::int64_t> extent;
  std::size_t bytes = 1;
  for (int d = 0; d < dimensions; ++d) {
    std::array<std::uint8_t, 4> word{};
    if (read_bytes(file, path, word.data(), word.size()) < word.size())
      fail(Exit::data, fmt::format("{}: the file ends within its header", path.string()));
    std::uint32_t size = 0;
    for (const std::uint8_t b : word) size = size << 8 | b;  // big-endian
    extent.push_back(size);
    if (size == 0 || __builtin_mul_overflow(bytes, std::size_t{size}, &bytes))
      fail(Exit::data, fmt::format("{}: the header says dimension {} has {} elements, which cannot "
                                   "be; the file is damaged",
                                   path.string(), d, size));
  }
  return {extent, bytes};
}

/// The file of this name in one of its spellings; empty if there is none.
fs::path find_file(const fs::path& folder, const std::string& stem, const std::string& kind) {
  for (const char* separator : {"-", "."})
    for (const char* ending : {"", ".gz"})
      if (const fs::path path = folder / (stem + separator + kind + ending); fs::exists(path))
        return path;
  return {};
}

/// The images and labels of one part, as read.
struct IdxPart {
  IdxFile images;
  std::vector<LabelFile> labels;  ///< one file
};

/// Empty if neither file is there and the part is optional.
std::optional<IdxPart> read_part(const fs::path& folder, const std::string& name, bool optional,
                                 const std::string& hint, FileFaults& faults) {
  const std::string image_stem = name + "-images", label_stem = name + "-labels";
  const fs::path images = find_file(folder, image_stem, "idx3-ubyte");
  const fs::path labels = find_file(folder, label_stem, "idx1-ubyte");
  if (optional && images.empty() && labels.empty()) return std::nullopt;
  IdxPart part;
  for (const auto& [path, wanted] : {std::pair(images, image_stem + "-idx3-ubyte"),
                                     std::pair(labels, label_stem + "-idx1-ubyte")})
    if (path.empty())
      faults.add(fmt::format("{}: expected a file {} or {}.gz, found none{}", folder.string(),
                             wanted, wanted, hint));
  if (images.empty() || labels.empty()) return std::nullopt;
  faults.collect([&] { part.images = read_idx(images, 3); });
  faults.collect([&] {
    const IdxFile file = read_idx(labels, 1);
    part.labels.push_back({labels.string(), "", {file.bytes.begin(), file.bytes.end()}});
  });
  if (!part.images.extent.empty() && !part.labels.empty()) {
    const auto count = static_cast<std::size_t>(part.images.extent[0]);
    if (count != part.labels[0].values.size())
      faults.add(fmt::format("{}: expected as many labels as {} has images, {}, found {}",
                             labels.string(), images.string(), count,
                             part.labels[0].values.size()));
  }
  return part;
}

std::unique_ptr<Dataset> make_dataset(IdxPart part, const fs::path& folder, const char* name,
                                      std::int64_t classes, const Normalisation& normalisation) {
  const Shape sample{part.images.extent[1], part.images.extent[2], 1};
  return std::make_unique<MemoryDataset>(fmt::format("idx {} ({})", folder.string(), name),
                                         std::move(part.images.bytes), joined_labels(part.labels),
                                         sample, classes, normalisation);
}

}  // namespace

IdxFile read_idx(const fs::path& path, int dimensions) {
  const GzipFile file = open_gzip(path);
  auto [extent, expected] = read_header(file, path, dimensions);
  IdxFile result{std::move(extent), {}};
  // In blocks, so that a wrong header does not ask for memory that the file never fills.
  std::size_t found = 0;
  while (found < expected) {
    const std::size_t block = std::min(kBlock, expected - found);
    result.bytes.resize(found + block);
    const std::size_t here = read_bytes(file, path, result.bytes.data() + found, block);
    found += here;
    if (here < block)
      fail(Exit::data, fmt::format("{}: expected {} bytes after the header, found {}; the file is "
                                   "truncated, fetch it again",
                                   path.string(), expected, found));
  }
  std::uint8_t more = 0;
  if (read_bytes(file, path, &more, 1) != 0)
    fail(Exit::data, fmt::format("{}: expected {} bytes after the header, found more; the file is "
                                 "damaged",
                                 path.string(), expected));
  return result;
}

DataPair open_idx(const fs::path& folder, std::optional<std::int64_t> classes,
                  const std::string& hint) {
  constexpr std::size_t kFiles = 4;
  FileFaults faults;
  if (!fs::is_directory(folder))
    fail(Exit::data,
         fmt::format("{}: expected a folder of IDX files, found none{}", folder.string(), hint));
  std::optional<IdxPart> train = read_part(folder, "train", false, hint, faults);
  std::optional<IdxPart> test = read_part(folder, "t10k", true, hint, faults);
  faults.fail_if_any(kFiles);
  const std::int64_t count = count_classes(train->labels, classes);
  check_labels(train->labels, count, faults);
  if (test) {
    check_labels(test->labels, count, faults);
    const auto &a = train->images.extent, &b = test->images.extent;
    if (a[1] != b[1] || a[2] != b[2])
      faults.add(fmt::format("{}: expected test images of {}x{} as for training, found {}x{}",
                             folder.string(), a[1], a[2], b[1], b[2]));
  }
  faults.fail_if_any(kFiles);

  PixelStatistics statistics;
  statistics.add(train->images.bytes);
  const Normalisation rule = statistics.normalisation();
  DataPair pair;
  pair.train = make_dataset(std::move(*train), folder, "train", count, rule);
  if (test) pair.test = make_dataset(std::move(*test), folder, "test", count, rule);
  return pair;
}

}  // namespace sidestep
