// What writing and reading a checkpoint file share: names of the marks, digests, element types.
// Internal to io/checkpoint_*.cc; storage thread only.
#pragma once

#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint_file.h"

namespace sidestep {

using Attributes = std::map<std::string, AttrValue>;

inline constexpr const char* kDigest = "digest";
inline constexpr const char* kFormat = "format";
inline constexpr const char* kComplete = "complete";

inline std::string_view as_text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Digest of a dataset, 16 hex digits: its bytes (block_hash), then its dtype and shape, so that a
/// changed shape is found too.
std::string tensor_digest(std::uint64_t bytes_hash, DType dtype, const Shape& shape);

/// Digest of a group's attributes, 16 hex digits: names, kinds and values in the order of names.
std::string attribute_digest(const Attributes& attributes);

/// HDF5's type of an element in memory.
hid_t memory_type(DType dtype);

}  // namespace sidestep
