// Data in HDF5 files: opens and checks all of them, then holds the set in memory in its stored type
// if it fits, or reads it on demand. Any thread; HDF5 itself runs on the storage thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/dataset.h"
#include "io/storage_thread.h"

namespace sidestep {

/// Parts up to this size are held in memory by each rank: every chunk is then unpacked once a run,
/// whatever the order of the samples.
inline constexpr std::size_t kHdf5MemoryLimit = std::size_t{2} << 30;

struct Hdf5Files {
  std::vector<std::string> train, test;
};

/// "FILE[,FILE...][;test=FILE,...]". Exit::settings if it is malformed.
Hdf5Files parse_hdf5(const std::string& text);

/// See open_shard for the layout of a file and open_data for `classes`. The files of a part are
/// read one after the other as one set. Exit::data naming every file that cannot be used.
DataPair open_hdf5_data(const Hdf5Files& files, std::optional<std::int64_t> classes,
                        StorageThread& storage, std::size_t memory_limit = kHdf5MemoryLimit);

}  // namespace sidestep
