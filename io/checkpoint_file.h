// One HDF5 file a checkpoint: generic content, written atomically and verified on reading. All
// HDF5 calls run on the storage thread; these functions must be called there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/shape.h"

namespace sidestep {

using AttrValue = std::variant<std::int64_t, double, std::string>;

struct CheckpointTensor {
  std::string path;  ///< "/model/params/conv1.weight"
  Shape shape;
  DType dtype = DType::f32;
  std::vector<std::byte> bytes;
};

/// What a file holds: datasets, and attributes by group ("/run" -> "step" -> 7).
struct CheckpointContent {
  std::vector<CheckpointTensor> tensors;
  std::map<std::string, std::map<std::string, AttrValue>> attributes;

  const CheckpointTensor* find(const std::string& path) const;
  std::optional<AttrValue> attribute(const std::string& group, const std::string& name) const;
};

/// Newest format this program writes and reads; a newer file is refused by name.
inline constexpr std::int64_t kCheckpointFormat = 1;

/// Writes to a temporary name beside `path`, with a digest per dataset and group (attribute
/// "digest"), a completeness mark ("complete" = 1 and "format" on the root) and a seal over all
/// bytes (checkpoint_seal.h), flushes to disk, renames, flushes the folder. Group "/" takes
/// attributes too; "digest", "complete" and "format" are reserved. On any failure the temporary is
/// removed, an older file of that name is untouched, and Exit::checkpoint names path, bytes needed,
/// bytes free and the system's error. Needs one more copy of the content in memory while it runs.
/// Equal content gives byte-equal files.
void write_checkpoint(const std::filesystem::path& path, const CheckpointContent& content);

/// Reads and verifies everything: the seal before HDF5 sees the file, then every digest; tensors
/// come in the order of their paths. A file that another program changed and closed is read as well
/// if the digests of what is in it are right, so that one may remove datasets with h5py.
/// Exit::checkpoint naming file and dataset for damage, a missing mark, a newer format, a file that
/// is locked (naming HDF5_USE_FILE_LOCKING).
CheckpointContent read_checkpoint(const std::filesystem::path& path);

/// Names, shapes, dtypes and attributes without the data (digests of datasets not checked, the
/// structure is): for inspect.
CheckpointContent read_checkpoint_outline(const std::filesystem::path& path);

/// Compiled and loaded HDF5 versions; check_hdf5_version fails with Exit::settings in one line if
/// they do not fit (instead of HDF5's own abort).
std::string hdf5_compiled_version();
std::string hdf5_loaded_version();
void check_hdf5_version();

}  // namespace sidestep
