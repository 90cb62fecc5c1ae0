// The seal of a checkpoint: a table of digests after the end of the HDF5 data, so that damage is
// found (and the damaged dataset named) before the HDF5 library parses a single byte. HDF5 and h5py
// ignore bytes after their end of file. No HDF5 calls here; any thread.
//
// Layout, all text: a line "offset bytes digest path" for each part of the file in order, the parts
// covering all HDF5 bytes without a gap ("-" is HDF5's own structure); then one line of fixed
// length, "sidestep seal 1 <bytes of the table> <digest of the table>", numbers as 16 hex digits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace sidestep {

/// hash64 chained over blocks of 4 MiB, so that files larger than memory can be checked; equal to
/// hash64 for a single block.
std::uint64_t block_hash(std::string_view bytes);

/// Where a dataset's bytes lie in the file.
struct SealPart {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t digest = 0;  ///< block_hash
  std::string path;
};

/// The seal to append to `image`, whose datasets lie at `datasets` (any order, no overlap).
std::string make_seal(std::string_view image, std::vector<SealPart> datasets);

enum class SealState {
  sealed,  ///< every byte looked at is as it was written
  edited,  ///< no seal, but complete: another program wrote to it and closed it
};

/// Checks an open file from its first byte to its last; `with_data` false leaves the datasets'
/// bytes out. Exit::checkpoint naming the file and the dataset, or the structure, that is damaged,
/// or that the file is cut short, empty, or no HDF5 file.
SealState check_seal(int file, const std::filesystem::path& path, bool with_data);

}  // namespace sidestep
