// Files that the tests of io/ read: a folder of their own, IDX and HDF5 writers.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "io/dataset.h"

namespace sidestep::test {

/// A folder that goes with the object.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  std::string str() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

void write_bytes(const std::filesystem::path& path, const std::string& bytes);
std::string read_all(const std::filesystem::path& path);
/// Removes the last `bytes` of a file.
void truncate_by(const std::filesystem::path& path, std::uint64_t bytes);

/// The content of an IDX file of unsigned bytes.
std::string idx_text(const std::vector<std::uint32_t>& extent,
                     const std::vector<std::uint8_t>& data);
std::string gzip(const std::string& text);

struct Hdf5Content {
  std::vector<hsize_t> extent;  ///< of x
  hid_t x_type = -1;            ///< in the file
  std::vector<double> x;
  hid_t y_type = -1;
  std::vector<std::int64_t> y;
  std::int64_t classes = 0;                  ///< attribute of y, if not 0
  hsize_t chunk_rows = 0;                    ///< chunks of so many samples, if not 0
  H5Z_filter_t filter = H5Z_FILTER_DEFLATE;  ///< of chunks
};
/// Call inside StorageThread::read_now: HDF5 belongs to that thread.
void write_hdf5(const std::filesystem::path& path, const Hdf5Content& content);

/// The message of the Error that `call` throws; checks its code.
std::string error_of(Exit code, const std::function<void()>& call);

/// Samples as read() gives them.
struct ReadBack {
  std::vector<float> x;
  std::vector<std::int32_t> y;
};
ReadBack read_back(Dataset& data, const std::vector<std::int64_t>& ids);

}  // namespace sidestep::test
