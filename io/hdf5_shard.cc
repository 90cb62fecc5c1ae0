#include "io/hdf5_shard.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "io/normalisation.h"

namespace sidestep {
namespace {

constexpr const char* kHow =
    "x holds the pixels as [n, h, w], [n, h, w, c] or [n, f], y the labels as [n]";

std::string object(const Hdf5Shard& shard, const char* dataset) {
  return fmt::format("{}: dataset {}", shard.path, dataset);
}

/// Names in the file's root group, for the message about a missing one.
std::vector<std::string> names_in(const Hdf5File& file) {
  std::vector<std::string> names;
  H5G_info_t info{};
  if (H5Gget_info(file.get(), &info) < 0) return names;
  constexpr hsize_t kMost = 20;
  for (hsize_t i = 0; i < std::min(info.nlinks, kMost); ++i) {
    std::array<char, 128> name{};
    if (H5Lget_name_by_idx(file.get(), ".", H5_INDEX_NAME, H5_ITER_INC, i, name.data(), name.size(),
                           H5P_DEFAULT) >= 0)
      names.emplace_back(name.data());
  }
  return names;
}

Hdf5Dataset open_dataset(const Hdf5Shard& shard, const char* name) {
  const std::string what = object(shard, name);
  const htri_t present =
      SIDESTEP_HDF5(Exit::data, what, H5Lexists(shard.file.get(), name, H5P_DEFAULT));
  if (present == 0)
    fail(Exit::data, fmt::format("{}: expected it in the file, found {}; {}", what,
                                 names_in(shard.file), kHow));
  return Hdf5Dataset(
      SIDESTEP_HDF5(Exit::data, what, H5Dopen2(shard.file.get(), name, H5P_DEFAULT)));
}

std::vector<hsize_t> extent_of(const Hdf5Dataset& dataset, const std::string& what) {
  const Hdf5Space space(SIDESTEP_HDF5(Exit::data, what, H5Dget_space(dataset.get())));
  return hdf5_extent(space.get());
}

void check_x_type(Hdf5Shard& shard) {
  const std::string what = object(shard, "x");
  const Hdf5Type type(SIDESTEP_HDF5(Exit::data, what, H5Dget_type(shard.x.get())));
  const H5T_class_t type_class = H5Tget_class(type.get());
  const std::size_t size = H5Tget_size(type.get());
  shard.bytes = type_class == H5T_INTEGER && size == 1 && H5Tget_sign(type.get()) == H5T_SGN_NONE;
  if (!shard.bytes && !(type_class == H5T_FLOAT && (size == 4 || size == 8)))
    fail(Exit::data, fmt::format("{}: expected pixels of type uint8, float32 or float64, found {}; "
                                 "convert them",
                                 what, hdf5_type_name(type.get())));
}

void check_x_extent(Hdf5Shard& shard) {
  const std::string what = object(shard, "x");
  const std::vector<hsize_t> extent = extent_of(shard.x, what);
  hsize_t elements = 1;
  bool valid = extent.size() >= 2 && extent.size() <= 4;
  for (const hsize_t d : extent)
    valid = valid && d > 0 && !__builtin_mul_overflow(elements, d, &elements);
  if (!valid || elements > hsize_t{1} << 48)
    fail(Exit::data, fmt::format("{}: expected at least one sample, as [n, h, w], [n, h, w, c] or "
                                 "[n, f], found {}",
                                 what, extent));
  const auto dim = [&](std::size_t i) { return static_cast<std::int64_t>(extent[i]); };
  shard.rank = static_cast<int>(extent.size());
  shard.count = dim(0);
  shard.sample = shard.rank == 2   ? Shape{1, dim(1), 1}
                 : shard.rank == 3 ? Shape{dim(1), dim(2), 1}
                                   : Shape{dim(1), dim(2), dim(3)};
}

void read_layout(Hdf5Shard& shard) {
  const std::string what = object(shard, "x");
  const Hdf5Properties made(SIDESTEP_HDF5(Exit::data, what, H5Dget_create_plist(shard.x.get())));
  if (H5Pget_layout(made.get()) != H5D_CHUNKED) return;
  std::array<hsize_t, 4> chunk{};
  SIDESTEP_HDF5(Exit::data, what, H5Pget_chunk(made.get(), shard.rank, chunk.data()));
  const Hdf5Type type(SIDESTEP_HDF5(Exit::data, what, H5Dget_type(shard.x.get())));
  shard.chunk_rows = static_cast<std::int64_t>(chunk[0]);
  shard.chunk_bytes = H5Tget_size(type.get());
  for (int d = 0; d < shard.rank; ++d) shard.chunk_bytes *= chunk[static_cast<std::size_t>(d)];
  shard.compressed = H5Pget_nfilters(made.get()) > 0;
}

/// The number of classes the file declares, if it does.
std::optional<std::int64_t> read_classes(const Hdf5Dataset& y, const std::string& what) {
  if (H5Aexists(y.get(), "classes") <= 0) return std::nullopt;
  const std::string attribute = what + ": attribute classes";
  const Hdf5Attribute classes(
      SIDESTEP_HDF5(Exit::data, attribute, H5Aopen(y.get(), "classes", H5P_DEFAULT)));
  const Hdf5Space space(SIDESTEP_HDF5(Exit::data, attribute, H5Aget_space(classes.get())));
  const Hdf5Type type(SIDESTEP_HDF5(Exit::data, attribute, H5Aget_type(classes.get())));
  std::int64_t value = 0;
  if (H5Tget_class(type.get()) == H5T_INTEGER && H5Sget_simple_extent_npoints(space.get()) == 1)
    SIDESTEP_HDF5(Exit::data, attribute, H5Aread(classes.get(), H5T_NATIVE_INT64, &value));
  if (value < 2 || value > kMostClasses)
    fail(Exit::data,
         fmt::format("{}: expected one integer in 2..{}, found {}", attribute, kMostClasses,
                     value == 0 ? hdf5_type_name(type.get()) : std::to_string(value)));
  return value;
}

void read_labels(Hdf5Shard& shard) {
  const std::string what = object(shard, "y");
  const Hdf5Dataset y = open_dataset(shard, "y");
  const Hdf5Type type(SIDESTEP_HDF5(Exit::data, what, H5Dget_type(y.get())));
  if (H5Tget_class(type.get()) != H5T_INTEGER)
    fail(Exit::data, fmt::format("{}: expected labels of an integer type, found {}; convert them",
                                 what, hdf5_type_name(type.get())));
  const std::vector<hsize_t> extent = extent_of(y, what);
  const auto count = static_cast<hsize_t>(shard.count);
  if (extent != std::vector{count} && extent != std::vector<hsize_t>{count, 1})
    fail(Exit::data, fmt::format("{}: expected [{}], one label for each sample of x, found {}",
                                 what, count, extent));
  shard.labels = {shard.path, "y", std::vector<std::int64_t>(count)};
  SIDESTEP_HDF5(Exit::data, what,
                H5Dread(y.get(), H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                        shard.labels.values.data()));
  shard.classes = read_classes(y, what);
}

}  // namespace

Hdf5Shard open_shard(const std::string& path) {
  Hdf5Shard shard;
  shard.path = path;
  shard.file = open_hdf5(path, Exit::data);
  shard.x = open_dataset(shard, "x");
  check_x_type(shard);
  check_x_extent(shard);
  read_layout(shard);
  read_labels(shard);
  return shard;
}

void set_chunk_cache(Hdf5Shard& shard, std::size_t bytes) {
  constexpr std::size_t kSlots = 12421;  // a prime, large against the chunks that fit
  const std::string what = object(shard, "x");
  const Hdf5Properties access(SIDESTEP_HDF5(Exit::data, what, H5Pcreate(H5P_DATASET_ACCESS)));
  // The last number: no chunk is thrown out early because all of it has been read.
  SIDESTEP_HDF5(Exit::data, what,
                H5Pset_chunk_cache(access.get(), kSlots, std::max(bytes, shard.chunk_bytes), 0.0));
  shard.x.close(Exit::data, what);  // a second handle would share the cache of the first
  shard.x =
      Hdf5Dataset(SIDESTEP_HDF5(Exit::data, what, H5Dopen2(shard.file.get(), "x", access.get())));
}

void read_rows(const Hdf5Shard& shard, std::int64_t begin, std::int64_t count, std::byte* to) {
  const auto what = [&] {
    return fmt::format("{}, samples {}..{}: expected readable data", object(shard, "x"), begin,
                       begin + count - 1);
  };
  std::array<hsize_t, 4> start{}, size{};
  const Hdf5Space space(SIDESTEP_HDF5(Exit::data, what(), H5Dget_space(shard.x.get())));
  SIDESTEP_HDF5(Exit::data, what(), H5Sget_simple_extent_dims(space.get(), size.data(), nullptr));
  start[0] = static_cast<hsize_t>(begin);
  size[0] = static_cast<hsize_t>(count);
  SIDESTEP_HDF5(Exit::data, what(),
                H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, size.data(),
                                    nullptr));
  const Hdf5Space memory(
      SIDESTEP_HDF5(Exit::data, what(), H5Screate_simple(shard.rank, size.data(), nullptr)));
  SIDESTEP_HDF5(Exit::data, what(),
                H5Dread(shard.x.get(), shard.bytes ? H5T_NATIVE_UINT8 : H5T_NATIVE_FLOAT,
                        memory.get(), space.get(), H5P_DEFAULT, to));
}

void check_finite(const Hdf5Shard& shard, std::int64_t begin, std::span<const float> values) {
  const std::int64_t bad = first_non_finite(values);
  if (bad < 0) return;
  fail(Exit::data, fmt::format("{}: sample {}: expected finite values, found {}; correct the file",
                               object(shard, "x"), begin + bad / shard.sample.numel(),
                               values[static_cast<std::size_t>(bad)]));
}

}  // namespace sidestep
