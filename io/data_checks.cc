#include "io/data_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/rng.h"

namespace sidestep {

void FileFaults::fail_if_any(std::size_t files) const {
  if (faults_.empty()) return;
  if (faults_.size() == 1) fail(Exit::data, faults_.front());
  fail(Exit::data, fmt::format("{} of {} data files cannot be used: {}", faults_.size(), files,
                               fmt::join(faults_, "; ")));
}

std::int64_t count_classes(std::span<const LabelFile> train, std::optional<std::int64_t> wanted) {
  if (wanted) {
    if (*wanted < 2 || *wanted > kMostClasses)
      fail(Exit::settings,
           fmt::format("number of classes: expected 2..{}, found {}", kMostClasses, *wanted));
    return *wanted;
  }
  std::int64_t classes = 2;
  for (const LabelFile& file : train)
    for (const std::int64_t label : file.values)
      if (label < kMostClasses) classes = std::max(classes, label + 1);
  return classes;
}

void check_labels(std::span<const LabelFile> files, std::int64_t classes, FileFaults& faults) {
  const auto outside = [classes](std::int64_t label) { return label < 0 || label >= classes; };
  for (const LabelFile& file : files) {
    const auto first = std::find_if(file.values.begin(), file.values.end(), outside);
    if (first == file.values.end()) continue;
    const auto others = std::count_if(first + 1, file.values.end(), outside);
    faults.add(fmt::format(
        "{}{}: sample {}: expected a label in 0..{}, found {}{}; correct the file, or give the "
        "number of "
        "classes",
        file.path, file.dataset.empty() ? "" : fmt::format(": dataset {}", file.dataset),
        first - file.values.begin(), classes - 1, *first,
        others == 0 ? "" : fmt::format(" (and {} more such samples)", others)));
  }
}

std::vector<std::int32_t> joined_labels(std::span<const LabelFile> files) {
  std::size_t count = 0;
  for (const LabelFile& file : files) count += file.values.size();
  std::vector<std::int32_t> all;
  all.reserve(count);
  for (const LabelFile& file : files)
    for (const std::int64_t label : file.values) all.push_back(static_cast<std::int32_t>(label));
  return all;
}

std::uint64_t data_digest(const Shape& sample, std::int64_t classes,
                          std::span<const std::int32_t> labels) {
  const std::int64_t sizes[] = {static_cast<std::int64_t>(labels.size()), sample[0], sample[1],
                                sample[2], classes};
  return hash64(labels.data(), labels.size_bytes(), hash64(sizes, sizeof sizes));
}

void check_ids(std::span<const std::int64_t> ids, std::int64_t size) {
  const auto bad = std::find_if(ids.begin(), ids.end(),
                                [size](std::int64_t id) { return id < 0 || id >= size; });
  if (bad != ids.end())
    check(false, fmt::format("sample {} was asked of a data set of {} samples", *bad, size));
}

std::string describe_samples(std::int64_t count, const Shape& sample, std::int64_t classes) {
  return fmt::format("{} samples of {}x{}x{}, {} classes", count, sample[0], sample[1], sample[2],
                     classes);
}

}  // namespace sidestep
