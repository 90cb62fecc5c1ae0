// Checks that every source of data shares: faults of several files in one report, label ranges,
// sample ids. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/shape.h"

namespace sidestep {

/// More than this is no number of classes, and a larger label no class.
inline constexpr std::int64_t kMostClasses = std::int64_t{1} << 24;

/// Collects what is wrong with the files of a data set, so that all bad ones are named at once.
class FileFaults {
 public:
  /// Runs `check`; an Error of Exit::data, whose message names the file, becomes a fault.
  template <class Check>
  void collect(Check check);
  void add(std::string fault) { faults_.push_back(std::move(fault)); }
  /// Exit::data with every fault, if there is any. `files` is how many were looked at.
  void fail_if_any(std::size_t files) const;

 private:
  std::vector<std::string> faults_;
};

/// Labels as a file holds them.
struct LabelFile {
  std::string path;
  std::string dataset;  ///< "y"; empty for formats without names
  std::vector<std::int64_t> values;
};

/// The number of classes: `wanted` if given, else the largest training label plus one, at least 2.
std::int64_t count_classes(std::span<const LabelFile> train, std::optional<std::int64_t> wanted);

/// Adds one fault for each file with labels outside 0..classes-1, naming file, dataset, index of
/// the first one, its value and the range.
void check_labels(std::span<const LabelFile> files, std::int64_t classes, FileFaults& faults);

/// The labels of all files, one after the other; they must have been checked.
std::vector<std::int32_t> joined_labels(std::span<const LabelFile> files);

/// Digest of what ranks must agree on: sizes and labels.
std::uint64_t data_digest(const Shape& sample, std::int64_t classes,
                          std::span<const std::int32_t> labels);

/// Exit::internal when an id lies outside 0..size-1.
void check_ids(std::span<const std::int64_t> ids, std::int64_t size);

/// "60000 samples of 28x28x1, 10 classes"
std::string describe_samples(std::int64_t count, const Shape& sample, std::int64_t classes);

template <class Check>
void FileFaults::collect(Check check) {
  try {
    check();
  } catch (const Error& error) {
    if (error.code() != Exit::data) throw;
    add(error.what());
  }
}

}  // namespace sidestep
