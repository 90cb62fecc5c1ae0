#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/error.h"
#include "io/checkpoint_layout.h"
#include "io/checkpoint_seal.h"
#include "io/hdf5_handles.h"
#include "io/output_file.h"

namespace sidestep {

namespace fs = std::filesystem;

namespace {

hid_t file_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return H5T_IEEE_F32LE;
    case DType::f64:
      return H5T_IEEE_F64LE;
    case DType::i32:
      return H5T_STD_I32LE;
    case DType::i64:
      return H5T_STD_I64LE;
    case DType::u8:
      return H5T_STD_U8LE;
  }
  return H5I_INVALID_HID;
}

Hdf5Type text_type(const std::string& what) {
  Hdf5Type type(SIDESTEP_HDF5(Exit::checkpoint, what, H5Tcopy(H5T_C_S1)));
  SIDESTEP_HDF5(Exit::checkpoint, what, H5Tset_size(type.get(), H5T_VARIABLE));
  SIDESTEP_HDF5(Exit::checkpoint, what, H5Tset_cset(type.get(), H5T_CSET_UTF8));
  return type;
}

/// Builds the HDF5 file in memory (HDF5's core driver). HDF5 1.10 does not recover from a failed
/// write to a full disk: the file cannot be closed any more. So it never writes to disk here; the
/// price is one more copy of the checkpoint in memory while it is written.
class ImageWriter {
 public:
  ImageWriter(const fs::path& path, std::uint64_t bytes);
  void write_attributes(const std::string& group, const Attributes& attributes);
  void write(const CheckpointTensor& tensor);
  /// Writes the completeness mark and returns the image, which lives as long as this object.
  std::string_view finish();
  std::vector<SealPart>& parts() { return parts_; }

 private:
  void ensure_group(const std::string& group);
  void write_attribute(hid_t object, const std::string& name, const AttrValue& value);

  std::string what_;
  Hdf5Properties access_, no_times_, dataset_no_times_;
  Hdf5Type text_;
  Hdf5File file_;
  std::vector<SealPart> parts_;
};

ImageWriter::ImageWriter(const fs::path& path, std::uint64_t bytes)
    : what_(fmt::format("checkpoint {}: cannot be put together", path.string())) {
  quiet_hdf5();
  text_ = text_type(what_);
  const auto properties = [&](hid_t kind) {
    return Hdf5Properties(SIDESTEP_HDF5(Exit::checkpoint, what_, H5Pcreate(kind)));
  };
  const auto require = [&](herr_t result) { SIDESTEP_HDF5(Exit::checkpoint, what_, result); };
  access_ = properties(H5P_FILE_ACCESS);
  no_times_ = properties(H5P_GROUP_CREATE);
  dataset_no_times_ = properties(H5P_DATASET_CREATE);
  const Hdf5Properties creation = properties(H5P_FILE_CREATE);
  require(H5Pset_fapl_core(access_.get(), bytes, false));
  // From format 1.8 on HDF5's own structure has checksums.
  require(H5Pset_libver_bounds(access_.get(), H5F_LIBVER_V18, H5F_LIBVER_LATEST));
  require(H5Pset_fclose_degree(access_.get(), H5F_CLOSE_STRONG));
  // Equal content gives equal files.
  for (const hid_t list : {creation.get(), no_times_.get(), dataset_no_times_.get()})
    require(H5Pset_obj_track_times(list, false));
  require(H5Pset_fill_time(dataset_no_times_.get(), H5D_FILL_TIME_NEVER));
  file_ = Hdf5File(SIDESTEP_HDF5(
      Exit::checkpoint, what_,
      H5Fcreate(path.filename().c_str(), H5F_ACC_TRUNC, creation.get(), access_.get())));
}

void ImageWriter::ensure_group(const std::string& group) {
  const auto slash = group.rfind('/');
  if (group.size() <= 1 || slash == std::string::npos) return;
  ensure_group(group.substr(0, slash));
  if (SIDESTEP_HDF5(Exit::checkpoint, what_, H5Lexists(file_.get(), group.c_str(), H5P_DEFAULT)) >
      0)
    return;
  Hdf5Group made(SIDESTEP_HDF5(
      Exit::checkpoint, what_,
      H5Gcreate2(file_.get(), group.c_str(), H5P_DEFAULT, no_times_.get(), H5P_DEFAULT)));
}

void ImageWriter::write_attribute(hid_t object, const std::string& name, const AttrValue& value) {
  const auto put = [&](hid_t type, hid_t native, const void* data) {
    const Hdf5Space space(SIDESTEP_HDF5(Exit::checkpoint, what_, H5Screate(H5S_SCALAR)));
    const Hdf5Attribute attribute(SIDESTEP_HDF5(
        Exit::checkpoint, what_,
        H5Acreate2(object, name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT)));
    SIDESTEP_HDF5(Exit::checkpoint, what_, H5Awrite(attribute.get(), native, data));
  };
  if (const auto* i = std::get_if<std::int64_t>(&value)) put(H5T_STD_I64LE, H5T_NATIVE_INT64, i);
  if (const auto* d = std::get_if<double>(&value)) put(H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, d);
  if (const auto* s = std::get_if<std::string>(&value)) {
    check(s->find('\0') == std::string::npos, "a text attribute holds a zero byte");
    const char* text = s->c_str();
    put(text_.get(), text_.get(), &text);
  }
}

void ImageWriter::write_attributes(const std::string& group, const Attributes& attributes) {
  check(group.starts_with('/'), "a group's path begins with a slash");
  ensure_group(group);
  const Hdf5Group object(
      SIDESTEP_HDF5(Exit::checkpoint, what_, H5Gopen2(file_.get(), group.c_str(), H5P_DEFAULT)));
  for (const auto& [name, value] : attributes) {
    check(name != kDigest && name != kComplete, "a reserved attribute name");
    write_attribute(object.get(), name, value);
  }
  write_attribute(object.get(), kDigest, attribute_digest(attributes));
}

void ImageWriter::write(const CheckpointTensor& tensor) {
  check(tensor.path.starts_with('/') && tensor.path.find('\n') == std::string::npos,
        "a dataset's path begins with a slash and is one line");
  check(
      tensor.bytes.size() == static_cast<std::size_t>(tensor.shape.numel()) * size_of(tensor.dtype),
      "bytes of a checkpoint tensor fit its shape");
  ensure_group(tensor.path.substr(0, tensor.path.rfind('/')));
  std::array<hsize_t, Shape::kMaxRank> dims{};
  std::ranges::copy(tensor.shape.dims(), dims.begin());
  const Hdf5Space space(SIDESTEP_HDF5(
      Exit::checkpoint, what_,
      tensor.shape.rank() == 0 ? H5Screate(H5S_SCALAR)
                               : H5Screate_simple(tensor.shape.rank(), dims.data(), nullptr)));
  const Hdf5Dataset dataset(
      SIDESTEP_HDF5(Exit::checkpoint, what_,
                    H5Dcreate2(file_.get(), tensor.path.c_str(), file_type(tensor.dtype),
                               space.get(), H5P_DEFAULT, dataset_no_times_.get(), H5P_DEFAULT)));
  const std::uint64_t hash = block_hash(as_text(tensor.bytes));
  write_attribute(dataset.get(), kDigest, tensor_digest(hash, tensor.dtype, tensor.shape));
  if (tensor.bytes.empty()) return;
  SIDESTEP_HDF5(Exit::checkpoint, what_,
                H5Dwrite(dataset.get(), memory_type(tensor.dtype), H5S_ALL, H5S_ALL, H5P_DEFAULT,
                         tensor.bytes.data()));
  parts_.push_back({H5Dget_offset(dataset.get()), tensor.bytes.size(), hash, tensor.path});
}

std::string_view ImageWriter::finish() {
  const Hdf5Group root(
      SIDESTEP_HDF5(Exit::checkpoint, what_, H5Gopen2(file_.get(), "/", H5P_DEFAULT)));
  write_attribute(root.get(), kComplete, std::int64_t{1});
  SIDESTEP_HDF5(Exit::checkpoint, what_, H5Fflush(file_.get(), H5F_SCOPE_GLOBAL));
  const ssize_t size =
      SIDESTEP_HDF5(Exit::checkpoint, what_, H5Fget_file_image(file_.get(), nullptr, 0));
  void* handle = nullptr;  // for the core driver: the address of its pointer to the image
  SIDESTEP_HDF5(Exit::checkpoint, what_, H5Fget_vfd_handle(file_.get(), H5P_DEFAULT, &handle));
  return {*static_cast<const char**>(handle), static_cast<std::size_t>(size)};
}

}  // namespace

void write_checkpoint(const fs::path& path, const CheckpointContent& content) {
  // An estimate from above, so that HDF5 allocates its image once.
  std::uint64_t bytes = 64 * 1024;
  for (const CheckpointTensor& tensor : content.tensors) bytes += tensor.bytes.size() + 2048;
  ImageWriter image(path, bytes);
  Attributes root = content.attributes.contains("/") ? content.attributes.at("/") : Attributes{};
  root[kFormat] = kCheckpointFormat;
  image.write_attributes("/", root);
  for (const auto& [group, attributes] : content.attributes)
    if (group != "/") image.write_attributes(group, attributes);
  for (const CheckpointTensor& tensor : content.tensors) image.write(tensor);
  const std::string_view hdf5 = image.finish();
  const std::string seal = make_seal(hdf5, std::move(image.parts()));
  AtomicFile file(path, hdf5.size() + seal.size());
  file.write(hdf5);
  file.write(seal);
  file.publish();
}

}  // namespace sidestep
