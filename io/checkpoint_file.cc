#include "io/checkpoint_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "io/checkpoint_layout.h"

namespace sidestep {

namespace {

std::string as_hex(std::uint64_t digest) { return fmt::format("{:016x}", digest); }

}  // namespace

std::string tensor_digest(std::uint64_t bytes_hash, DType dtype, const Shape& shape) {
  const std::string kind = fmt::format("{} {}", to_string(dtype), to_string(shape));
  return as_hex(hash64(kind.data(), kind.size(), bytes_hash));
}

std::string attribute_digest(const Attributes& attributes) {
  std::string text;
  for (const auto& [name, value] : attributes) {
    text += fmt::format("{}{}{}", name, '\0', value.index());
    if (const auto* i = std::get_if<std::int64_t>(&value)) text += fmt::format("{}", *i);
    if (const auto* d = std::get_if<double>(&value))
      text += as_hex(std::bit_cast<std::uint64_t>(*d));
    if (const auto* s = std::get_if<std::string>(&value)) text += *s;
    text += '\0';
  }
  return as_hex(hash64(text.data(), text.size()));
}

hid_t memory_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return H5T_NATIVE_FLOAT;
    case DType::f64:
      return H5T_NATIVE_DOUBLE;
    case DType::i32:
      return H5T_NATIVE_INT32;
    case DType::i64:
      return H5T_NATIVE_INT64;
    case DType::u8:
      return H5T_NATIVE_UINT8;
  }
  return H5I_INVALID_HID;
}

const CheckpointTensor* CheckpointContent::find(const std::string& path) const {
  const auto it = std::ranges::find(tensors, path, &CheckpointTensor::path);
  return it == tensors.end() ? nullptr : &*it;
}

std::optional<AttrValue> CheckpointContent::attribute(const std::string& group,
                                                      const std::string& name) const {
  const auto of_group = attributes.find(group);
  if (of_group == attributes.end()) return std::nullopt;
  const auto value = of_group->second.find(name);
  if (value == of_group->second.end()) return std::nullopt;
  return value->second;
}

std::string hdf5_compiled_version() {
  return fmt::format("{}.{}.{}", H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE);
}

std::string hdf5_loaded_version() {
  unsigned major = 0, minor = 0, release = 0;
  if (H5get_libversion(&major, &minor, &release) < 0) return "unknown";
  return fmt::format("{}.{}.{}", major, minor, release);
}

void check_hdf5_version() {
  const std::string compiled = hdf5_compiled_version(), loaded = hdf5_loaded_version();
  // HDF5 compares all three numbers and ends the process, unless this variable is set.
  if (compiled == loaded || std::getenv("HDF5_DISABLE_VERSION_CHECK") != nullptr) return;
  fail(Exit::settings,
       fmt::format("HDF5: compiled with {}, loaded {}: load the module compiled with, or rebuild",
                   compiled, loaded));
}

}  // namespace sidestep
