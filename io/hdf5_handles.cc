#include "io/hdf5_handles.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/output_file.h"

namespace sidestep {
namespace {

/// A callback of H5Ewalk2: keeps the first message and ends the walk.
herr_t keep_first(unsigned, const H5E_error2_t* error, void* text) {
  auto& kept = *static_cast<std::string*>(text);
  if (error->desc != nullptr) kept = error->desc;
  return kept.empty() ? 0 : 1;
}

/// Closing a file closes what is still open in it, so that no lock outlives a failed call.
Hdf5Properties file_access(Exit code, const std::string& what) {
  Hdf5Properties access(SIDESTEP_HDF5(code, what, H5Pcreate(H5P_FILE_ACCESS)));
  SIDESTEP_HDF5(code, what, H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG));
  return access;
}

std::string class_name(H5T_class_t type_class) {
  switch (type_class) {
    case H5T_STRING:
      return "string";
    case H5T_COMPOUND:
      return "compound";
    case H5T_ENUM:
      return "enumeration";
    case H5T_BITFIELD:
      return "bitfield";
    case H5T_OPAQUE:
      return "opaque";
    case H5T_REFERENCE:
      return "reference";
    case H5T_VLEN:
      return "variable length";
    case H5T_ARRAY:
      return "array";
    default:
      return "a type HDF5 has no name for";
  }
}

}  // namespace

void quiet_hdf5() { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

std::string hdf5_error_text() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, &keep_first, &text);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

void fail_hdf5(Exit code, const std::string& what) {
  const std::string cause = hdf5_error_text();
  std::string line = fmt::format("{}: HDF5 reports: {}", what, cause.empty() ? "no cause" : cause);
  if (cause.find("lock file") != std::string::npos) {
    line +=
        "; another process has the file open for writing, or the file system has no locks: end "
        "that process, or set HDF5_USE_FILE_LOCKING=FALSE if nobody writes to the file";
  }
  fail(code, line);
}

Hdf5File open_hdf5(const std::filesystem::path& path, Exit code) {
  quiet_hdf5();
  check_readable_file(path, code);
  const std::string what =
      fmt::format("{}: expected a complete HDF5 file that can be read", path.string());
  const Hdf5Properties access = file_access(code, what);
  return Hdf5File(SIDESTEP_HDF5(code, what, H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get())));
}

Hdf5File create_hdf5(const std::filesystem::path& path, Exit code) {
  quiet_hdf5();
  const std::string what = fmt::format("{}: expected to create this HDF5 file", path.string());
  const Hdf5Properties access = file_access(code, what);
  return Hdf5File(
      SIDESTEP_HDF5(code, what, H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get())));
}

std::string hdf5_type_name(hid_t type) {
  const H5T_class_t type_class = H5Tget_class(type);
  if (type_class != H5T_INTEGER && type_class != H5T_FLOAT) return class_name(type_class);
  const std::size_t bits = 8 * H5Tget_size(type);
  const char* big = H5Tget_order(type) == H5T_ORDER_BE && bits > 8 ? ", big-endian" : "";
  if (type_class == H5T_FLOAT) return fmt::format("float{}{}", bits, big);
  return fmt::format("{}int{}{}", H5Tget_sign(type) == H5T_SGN_NONE ? "u" : "", bits, big);
}

std::vector<hsize_t> hdf5_extent(hid_t space) {
  const int rank = H5Sget_simple_extent_ndims(space);
  std::vector<hsize_t> extent(static_cast<std::size_t>(std::max(rank, 0)));
  if (rank > 0) H5Sget_simple_extent_dims(space, extent.data(), nullptr);
  return extent;
}

}  // namespace sidestep
