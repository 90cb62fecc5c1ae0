#include "io/hdf5_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "io/data_checks.h"
#include "io/hdf5_shard.h"
#include "io/hdf5_stream.h"
#include "io/memory_dataset.h"

namespace sidestep {
namespace {

using Shards = std::vector<Hdf5Shard>;

std::vector<std::string> split_files(const std::string& text, const std::string& spec) {
  std::vector<std::string> files;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    files.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (std::find(files.begin(), files.end(), "") != files.end())
    fail(Exit::settings,
         fmt::format("hdf5: expected FILE[,FILE...][;test=FILE,...], found '{}'", spec));
  return files;
}

/// Opens all files of a part; what is wrong with one does not keep the others from being looked at.
Shards open_shards(const std::vector<std::string>& files, FileFaults& faults) {
  Shards shards;
  for (const std::string& file : files) faults.collect([&] { shards.push_back(open_shard(file)); });
  return shards;
}

std::string describe_x(const Hdf5Shard& shard) {
  return fmt::format("{} samples of {}", shard.bytes ? "uint8" : "float", to_string(shard.sample));
}

void check_alike(const Hdf5Shard& first, const Shards& shards, FileFaults& faults) {
  for (const Hdf5Shard& shard : shards) {
    if (shard.sample != first.sample || shard.bytes != first.bytes)
      faults.add(fmt::format("{}: dataset x: expected {} as in {}, found {}", shard.path,
                             describe_x(first), first.path, describe_x(shard)));
    if (shard.classes && first.classes && *shard.classes != *first.classes)
      faults.add(fmt::format("{}: dataset y: attribute classes: expected {} as in {}, found {}",
                             shard.path, *first.classes, first.path, *shard.classes));
  }
}

std::vector<LabelFile> take_labels(Shards& shards) {
  std::vector<LabelFile> labels;
  for (Hdf5Shard& shard : shards) labels.push_back(std::move(shard.labels));
  return labels;
}

void give_labels(Shards& shards, std::vector<LabelFile> labels) {
  for (std::size_t i = 0; i < shards.size(); ++i) shards[i].labels = std::move(labels[i]);
}

/// Checks the labels of both parts; returns the number of classes.
std::int64_t agree_on_labels(Shards& train, Shards& test, std::optional<std::int64_t> wanted) {
  if (!wanted) wanted = train.front().classes;
  std::vector<LabelFile> train_labels = take_labels(train), test_labels = take_labels(test);
  const std::int64_t classes = count_classes(train_labels, wanted);
  FileFaults faults;
  check_labels(train_labels, classes, faults);
  check_labels(test_labels, classes, faults);
  faults.fail_if_any(train.size() + test.size());
  give_labels(train, std::move(train_labels));
  give_labels(test, std::move(test_labels));
  return classes;
}

std::size_t held_bytes(const Shards& shards) {
  std::size_t bytes = 0;
  for (const Hdf5Shard& shard : shards)
    bytes += static_cast<std::size_t>(shard.count) * shard.row_bytes();
  return bytes;
}

/// All samples of a part, each file in one call: a chunk is unpacked once.
template <class T>
std::vector<T> load(const Shards& shards, FileFaults& faults) {
  std::vector<T> pixels(held_bytes(shards) / sizeof(T));
  std::span<T> rest(pixels);
  for (const Hdf5Shard& shard : shards) {
    const std::span<T> own =
        rest.first(static_cast<std::size_t>(shard.count * shard.sample.numel()));
    faults.collect([&] {
      read_rows(shard, 0, shard.count, reinterpret_cast<std::byte*>(own.data()));
      if constexpr (std::is_same_v<T, float>) check_finite(shard, 0, own);
    });
    rest = rest.subspan(own.size());
  }
  return pixels;
}

/// Adds samples to the statistics from the files, block by block, until there are enough.
template <class T>
void measure(const Shards& shards, PixelStatistics& statistics) {
  constexpr std::size_t kBlockBytes = std::size_t{16} << 20;
  for (const Hdf5Shard& shard : shards) {
    const auto fitting = static_cast<std::int64_t>(kBlockBytes / shard.row_bytes());
    // whole chunks, so that none is unpacked twice
    const std::int64_t chunk = std::max<std::int64_t>(shard.chunk_rows, 1);
    const std::int64_t block = std::max(fitting / chunk * chunk, chunk);
    std::vector<T> pixels;
    for (std::int64_t row = 0; row < shard.count && !statistics.full(); row += block) {
      const std::int64_t count = std::min(block, shard.count - row);
      pixels.resize(static_cast<std::size_t>(count * shard.sample.numel()));
      read_rows(shard, row, count, reinterpret_cast<std::byte*>(pixels.data()));
      if constexpr (std::is_same_v<T, float>) check_finite(shard, row, pixels);
      statistics.add(pixels);
    }
  }
}

void hint_at_waste(const Shards& shards) {
  for (const Hdf5Shard& shard : shards) {
    if (!shard.compressed || shard.chunk_rows <= 1) continue;
    log_info(fmt::format(
        "hint: {}: x is compressed in chunks of {} samples and too large for memory, so a shuffled "
        "read unpacks {} samples to use one; rewrite it with one sample a chunk, as with h5repack "
        "-l x:CHUNK=...",
        shard.path, shard.chunk_rows, shard.chunk_rows));
    return;  // one hint is enough: the files of a set are usually made alike
  }
}

/// A part whose files and labels have been checked.
struct Part {
  Shards shards;
  bool in_memory = true;
  Pixels pixels;  ///< filled if in memory
};

Part load_part(Shards shards, std::size_t memory_limit, FileFaults& faults) {
  Part part{std::move(shards), true, {}};
  part.in_memory = held_bytes(part.shards) <= memory_limit;
  if (!part.in_memory) {
    hint_at_waste(part.shards);
  } else if (part.shards.front().bytes) {
    part.pixels = load<std::uint8_t>(part.shards, faults);
  } else {
    part.pixels = load<float>(part.shards, faults);
  }
  return part;
}

Normalisation measure_part(const Part& part) {
  PixelStatistics statistics;
  if (part.in_memory)
    std::visit([&](const auto& pixels) { statistics.add(pixels); }, part.pixels);
  else if (part.shards.front().bytes)
    measure<std::uint8_t>(part.shards, statistics);
  else
    measure<float>(part.shards, statistics);
  return statistics.normalisation();
}

std::unique_ptr<Dataset> make_dataset(Part part, std::int64_t classes, const Normalisation& rule,
                                      StorageThread& storage) {
  std::string source = "hdf5 " + part.shards.front().path;
  if (part.shards.size() > 1) source += fmt::format(" and {} more files", part.shards.size() - 1);
  if (!part.in_memory)
    return std::make_unique<Hdf5Stream>(source, std::move(part.shards), classes, rule, storage);
  const Shape sample = part.shards.front().sample;
  return std::make_unique<MemoryDataset>(source, std::move(part.pixels),
                                         joined_labels(take_labels(part.shards)), sample, classes,
                                         rule);
}

/// On the storage thread.
DataPair open_checked(const Hdf5Files& files, std::optional<std::int64_t> wanted,
                      StorageThread& storage, std::size_t memory_limit) {
  const std::size_t count = files.train.size() + files.test.size();
  FileFaults faults;
  Shards train = open_shards(files.train, faults), test = open_shards(files.test, faults);
  if (!train.empty()) {
    check_alike(train.front(), train, faults);
    check_alike(train.front(), test, faults);
  }
  faults.fail_if_any(count);
  const std::int64_t classes = agree_on_labels(train, test, wanted);
  Part train_part = load_part(std::move(train), memory_limit, faults);
  std::optional<Part> test_part;
  if (!test.empty()) test_part = load_part(std::move(test), memory_limit, faults);
  faults.fail_if_any(count);
  const Normalisation rule = measure_part(train_part);
  DataPair pair;
  pair.train = make_dataset(std::move(train_part), classes, rule, storage);
  if (test_part) pair.test = make_dataset(std::move(*test_part), classes, rule, storage);
  return pair;
}

}  // namespace

Hdf5Files parse_hdf5(const std::string& text) {
  const std::string marker = ";test=";
  const std::size_t at = text.find(marker);
  if (const std::size_t part = text.find(';'); part != at)
    fail(Exit::settings, fmt::format("data: expected hdf5:FILE[,FILE...][;test=FILE,...], found "
                                     "'{}' in 'hdf5:{}'",
                                     text.substr(part), text));
  Hdf5Files files;
  files.train = split_files(text.substr(0, at), text);
  if (at != std::string::npos) files.test = split_files(text.substr(at + marker.size()), text);
  return files;
}

DataPair open_hdf5_data(const Hdf5Files& files, std::optional<std::int64_t> classes,
                        StorageThread& storage, std::size_t memory_limit) {
  DataPair pair;
  storage.read_now([&] { pair = open_checked(files, classes, storage, memory_limit); });
  return pair;
}

}  // namespace sidestep
