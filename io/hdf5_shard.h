// One HDF5 file of samples: dataset x with the pixels, dataset y with the labels. Storage thread
// only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/base/shape.h"
#include "io/data_checks.h"
#include "io/hdf5_handles.h"

namespace sidestep {

/// An opened file whose shapes and types have been checked and whose labels have been read.
struct Hdf5Shard {
  std::string path;
  Hdf5File file;
  Hdf5Dataset x;
  std::int64_t count = 0;       ///< samples
  Shape sample;                 ///< [height, width, channels]
  int rank = 0;                 ///< of x in the file
  bool bytes = false;           ///< uint8; otherwise float32 in memory
  std::int64_t chunk_rows = 0;  ///< samples in a chunk; 0 if not chunked
  std::size_t chunk_bytes = 0;  ///< of an unpacked chunk
  bool compressed = false;      ///< or otherwise filtered
  LabelFile labels;
  std::optional<std::int64_t> classes;  ///< attribute `classes` of y

  std::size_t row_bytes() const {
    return static_cast<std::size_t>(sample.numel()) * (bytes ? 1 : sizeof(float));
  }
};

/// Opens and checks. x is [n, h, w], [n, h, w, c] or [n, f] (a row of f pixels: height 1, one
/// channel) of uint8, float32 or float64; y is [n] or [n, 1] of any integer type; either byte
/// order. Exit::data naming file, dataset, what was expected and found.
Hdf5Shard open_shard(const std::string& path);

/// Opens x anew with a cache for unpacked chunks of `bytes`, at least one chunk.
void set_chunk_cache(Hdf5Shard& shard, std::size_t bytes);

/// Samples begin .. begin+count-1 into memory: bytes as uint8, anything else as float32.
void read_rows(const Hdf5Shard& shard, std::int64_t begin, std::int64_t count, std::byte* to);

/// Exit::data naming the first sample with a value that is not finite, if there is one; `values`
/// are whole samples from `begin` on.
void check_finite(const Hdf5Shard& shard, std::int64_t begin, std::span<const float> values);

}  // namespace sidestep
