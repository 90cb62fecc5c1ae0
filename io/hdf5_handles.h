// Owning handles for HDF5's identifiers, the check around every HDF5 call, and the text of its
// errors. Storage thread only (the serial HDF5 library is not thread-safe).
//
// HDF5 prints a page of its own error stack by default; quiet_hdf5 switches that off and the check
// macro puts the innermost message, which holds the cause, into our one line.
#pragma once

#include <hdf5.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace sidestep {

/// Switches HDF5's own printing of errors off. open_hdf5 and create_hdf5 call it.
void quiet_hdf5();

/// The innermost message of HDF5's error stack, one line; empty when there is none. The next HDF5
/// call empties the stack.
std::string hdf5_error_text();

/// Fails with "<what>: HDF5 reports: <innermost message>"; names HDF5_USE_FILE_LOCKING when the
/// cause is a lock.
[[noreturn]] void fail_hdf5(Exit code, const std::string& what);

/// The result of an HDF5 call (hid_t, herr_t, htri_t, ssize_t), which is negative on failure. The
/// text is only put together when the call failed.
#define SIDESTEP_HDF5(exit_code, what, call)                         \
  [&] {                                                              \
    const auto hdf5_result = (call);                                 \
    if (hdf5_result < 0) ::sidestep::fail_hdf5((exit_code), (what)); \
    return hdf5_result;                                              \
  }()

/// Owns an identifier; closes it. Move-only.
template <herr_t (*Close)(hid_t)>
class Hdf5Handle {
 public:
  Hdf5Handle() = default;
  explicit Hdf5Handle(hid_t id) : id_(id) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  ~Hdf5Handle() {
    if (id_ >= 0) Close(id_);
  }
  hid_t get() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }
  /// Closes now and reports a failure (data that could not be flushed), which a destructor cannot.
  void close(Exit code, const std::string& what) {
    const hid_t id = std::exchange(id_, H5I_INVALID_HID);
    if (id >= 0 && Close(id) < 0) fail_hdf5(code, what);
  }

 private:
  hid_t id_ = H5I_INVALID_HID;
};

using Hdf5File = Hdf5Handle<&H5Fclose>;
using Hdf5Group = Hdf5Handle<&H5Gclose>;
using Hdf5Dataset = Hdf5Handle<&H5Dclose>;
using Hdf5Space = Hdf5Handle<&H5Sclose>;
using Hdf5Type = Hdf5Handle<&H5Tclose>;
using Hdf5Attribute = Hdf5Handle<&H5Aclose>;
using Hdf5Properties = Hdf5Handle<&H5Pclose>;
using Hdf5Object = Hdf5Handle<&H5Oclose>;

/// Opens for reading. Fails with `code` naming the path and the cause (missing, no HDF5 file,
/// truncated, locked).
Hdf5File open_hdf5(const std::filesystem::path& path, Exit code);
/// Creates or replaces a file, to be written by this process alone.
Hdf5File create_hdf5(const std::filesystem::path& path, Exit code);

/// "uint8", "int64, big-endian", "float32", "string", "compound", ...
std::string hdf5_type_name(hid_t type);
/// The extent of a dataspace; empty for a scalar.
std::vector<hsize_t> hdf5_extent(hid_t space);

}  // namespace sidestep
