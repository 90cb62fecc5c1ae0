// IDX files (MNIST, Fashion-MNIST), raw or gzip: which of the two is decided by their first bytes,
// not by their names. Held in memory. Any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "io/dataset.h"

namespace sidestep {

/// A file of unsigned bytes.
struct IdxFile {
  std::vector<std::int64_t> extent;
  std::vector<std::uint8_t> bytes;
};

/// Reads a file of `dimensions` dimensions. Exit::data naming path, the first bytes found and what
/// was expected.
IdxFile read_idx(const std::filesystem::path& path, int dimensions);

/// train-images-idx3-ubyte, train-labels-idx1-ubyte and, for the test part, t10k-..., each with or
/// without .gz, or with a dot before idx. `hint` ends the message for a folder without them. See
/// open_data for `classes`.
DataPair open_idx(const std::filesystem::path& folder, std::optional<std::int64_t> classes,
                  const std::string& hint);

}  // namespace sidestep
