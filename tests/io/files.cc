#include "tests/io/files.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <zlib.h>

#include <array>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "io/hdf5_handles.h"

namespace sidestep::test {

namespace fs = std::filesystem;

TempFolder::TempFolder() {
  std::string name = (fs::temp_directory_path() / "sidestep-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = name;
}
TempFolder::~TempFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

std::string read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void truncate_by(const fs::path& path, std::uint64_t bytes) {
  fs::resize_file(path, fs::file_size(path) - bytes);
}

std::string idx_text(const std::vector<std::uint32_t>& extent,
                     const std::vector<std::uint8_t>& data) {
  std::string text{'\0', '\0', '\x08', static_cast<char>(extent.size())};
  for (const std::uint32_t size : extent)
    for (const int shift : {24, 16, 8, 0}) text += static_cast<char>(size >> shift & 0xff);
  text.append(data.begin(), data.end());
  return text;
}

std::string gzip(const std::string& text) {
  TempFolder folder;
  const fs::path path = folder / "x";
  gzFile file = gzopen(path.c_str(), "wb");
  const int written = gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  if (gzclose(file) != Z_OK || written != static_cast<int>(text.size()))
    throw std::runtime_error("gzip");
  return read_all(path);
}

namespace {

constexpr const char* kWriting = "writing a test file";

template <class T>
void write_dataset(const Hdf5File& file, const char* name, const std::vector<hsize_t>& extent,
                   hid_t file_type, hid_t memory_type, const std::vector<T>& values,
                   hsize_t chunk_rows, H5Z_filter_t filter) {
  const Hdf5Space space(
      SIDESTEP_HDF5(Exit::internal, kWriting,
                    H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr)));
  const Hdf5Properties made(SIDESTEP_HDF5(Exit::internal, kWriting, H5Pcreate(H5P_DATASET_CREATE)));
  if (chunk_rows > 0) {
    std::vector<hsize_t> chunk = extent;
    chunk[0] = chunk_rows;
    SIDESTEP_HDF5(Exit::internal, kWriting,
                  H5Pset_chunk(made.get(), static_cast<int>(chunk.size()), chunk.data()));
    const unsigned level = 1;
    SIDESTEP_HDF5(Exit::internal, kWriting,
                  H5Pset_filter(made.get(), filter, H5Z_FLAG_MANDATORY, 1, &level));
  }
  const Hdf5Dataset dataset(SIDESTEP_HDF5(
      Exit::internal, kWriting,
      H5Dcreate2(file.get(), name, file_type, space.get(), H5P_DEFAULT, made.get(), H5P_DEFAULT)));
  const bool numbers =
      H5Tget_class(file_type) == H5T_INTEGER || H5Tget_class(file_type) == H5T_FLOAT;
  if (numbers && !values.empty())
    SIDESTEP_HDF5(
        Exit::internal, kWriting,
        H5Dwrite(dataset.get(), memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
}

}  // namespace

void write_hdf5(const fs::path& path, const Hdf5Content& content) {
  Hdf5File file = create_hdf5(path, Exit::internal);
  if (content.x_type >= 0)
    write_dataset(file, "x", content.extent, content.x_type, H5T_NATIVE_DOUBLE, content.x,
                  content.chunk_rows, content.filter);
  if (content.y_type >= 0) {
    write_dataset(file, "y", {content.y.size()}, content.y_type, H5T_NATIVE_INT64, content.y, 0,
                  H5Z_FILTER_NONE);
    if (content.classes != 0) {
      const Hdf5Dataset y(H5Dopen2(file.get(), "y", H5P_DEFAULT));
      const Hdf5Space scalar(H5Screate(H5S_SCALAR));
      const Hdf5Attribute attribute(
          H5Acreate2(y.get(), "classes", H5T_STD_I32LE, scalar.get(), H5P_DEFAULT, H5P_DEFAULT));
      SIDESTEP_HDF5(Exit::internal, kWriting,
                    H5Awrite(attribute.get(), H5T_NATIVE_INT64, &content.classes));
    }
  }
  file.close(Exit::internal, kWriting);
}

std::string error_of(Exit code, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return "";
}

ReadBack read_back(Dataset& data, const std::vector<std::int64_t>& ids) {
  ReadBack result;
  result.x.resize(ids.size() * static_cast<std::size_t>(data.sample_shape().numel()));
  result.y.resize(ids.size());
  data.read(ids, {result.x.data(), result.y.data()});
  return result;
}

}  // namespace sidestep::test
