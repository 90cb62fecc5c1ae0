#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <system_error>

#include "core/base/error.h"
#include "io/checkpoint_layout.h"
#include "io/checkpoint_seal.h"
#include "io/hdf5_handles.h"

namespace sidestep {

namespace fs = std::filesystem;

namespace {

constexpr int kMaxDepth = 16;

std::optional<DType> dtype_of_file(hid_t type) {
  const std::size_t size = H5Tget_size(type);
  if (H5Tget_class(type) == H5T_FLOAT)
    return size == 4   ? std::optional(DType::f32)
           : size == 8 ? std::optional(DType::f64)
                       : std::nullopt;
  if (H5Tget_class(type) != H5T_INTEGER) return std::nullopt;
  if (H5Tget_sign(type) == H5T_SGN_NONE) return size == 1 ? std::optional(DType::u8) : std::nullopt;
  return size == 4   ? std::optional(DType::i32)
         : size == 8 ? std::optional(DType::i64)
                     : std::nullopt;
}

/// The file opened for reading, with the shared lock that HDF5 would take.
class ReadLock {
 public:
  explicit ReadLock(const fs::path& path) {
    const auto refuse = [&](const std::string& cause) {
      fail(Exit::checkpoint, fmt::format("checkpoint {}: {}", path.string(), cause));
    };
    file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file_ < 0) refuse(std::generic_category().message(errno));
    struct stat info {};
    if (::fstat(file_, &info) != 0 || !S_ISREG(info.st_mode)) {
      ::close(file_);
      refuse("expected a file, found a folder or device; name a .h5 file");
    }
    const char* locking = std::getenv("HDF5_USE_FILE_LOCKING");
    if (locking != nullptr && std::strcmp(locking, "FALSE") == 0) return;
    // File systems without locks are left to HDF5, which has its own policy for them.
    if (::flock(file_, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      const std::string text = std::generic_category().message(errno);
      ::close(file_);
      refuse(
          fmt::format("locked, another process has it open for writing ({}); end that process, "
                      "or set HDF5_USE_FILE_LOCKING=FALSE if nobody writes to it",
                      text));
    }
  }
  ~ReadLock() { ::close(file_); }
  ReadLock(const ReadLock&) = delete;
  ReadLock& operator=(const ReadLock&) = delete;
  int file() const { return file_; }

 private:
  int file_ = -1;
};

class Reader {
 public:
  Reader(const fs::path& path, bool with_data)
      : name_(path.string()), with_data_(with_data), file_(open_hdf5(path, Exit::checkpoint)) {}
  CheckpointContent read();

 private:
  [[noreturn]] void refuse(const std::string& cause) const {
    fail(Exit::checkpoint, fmt::format("checkpoint {}: {}; use another checkpoint", name_, cause));
  }
  void compare(const std::string& object, const std::string& found,
               const Attributes& attributes) const;
  void check_marks(const Attributes& root) const;
  AttrValue read_attribute(hid_t object, const std::string& name, const std::string& path) const;
  Attributes read_attributes(hid_t object, const std::string& path) const;
  void read_group(hid_t group, const std::string& path, int depth);
  void read_child(hid_t group, hsize_t index, const std::string& path, int depth);
  void read_dataset(hid_t dataset, const std::string& path);

  std::string name_;
  bool with_data_;
  Hdf5File file_;
  CheckpointContent content_;
};

/// Compares a computed digest with the one stored among `attributes`.
void Reader::compare(const std::string& object, const std::string& found,
                     const Attributes& attributes) const {
  const auto stored = attributes.find(kDigest);
  if (stored == attributes.end()) refuse(fmt::format("{} without a digest", object));
  const auto* expected = std::get_if<std::string>(&stored->second);
  if (expected == nullptr || *expected != found)
    refuse(fmt::format("{}: digest {}, expected {}: damaged, or changed by another program", object,
                       found, expected == nullptr ? "a text" : *expected));
}

void Reader::check_marks(const Attributes& root) const {
  const auto number = [&](const char* name) -> std::int64_t {
    const auto it = root.find(name);
    const auto* value = it == root.end() ? nullptr : std::get_if<std::int64_t>(&it->second);
    return value == nullptr ? 0 : *value;
  };
  const std::int64_t format = number(kFormat);
  if (format < 1) refuse("no attribute \"format\": not a checkpoint of this program");
  if (format > kCheckpointFormat)
    fail(
        Exit::checkpoint,
        fmt::format("checkpoint {}: format {}, this program reads up to {}; use a newer version of "
                    "the program",
                    name_, format, kCheckpointFormat));
  if (number(kComplete) != 1) refuse("incomplete: the mark \"complete\" is missing");
}

AttrValue Reader::read_attribute(hid_t object, const std::string& name,
                                 const std::string& path) const {
  const std::string what = fmt::format("checkpoint {}: attribute {} of {}", name_, name, path);
  const Hdf5Attribute attribute(
      SIDESTEP_HDF5(Exit::checkpoint, what, H5Aopen(object, name.c_str(), H5P_DEFAULT)));
  const Hdf5Type type(SIDESTEP_HDF5(Exit::checkpoint, what, H5Aget_type(attribute.get())));
  const Hdf5Space space(SIDESTEP_HDF5(Exit::checkpoint, what, H5Aget_space(attribute.get())));
  if (H5Sget_simple_extent_npoints(space.get()) != 1)
    refuse(fmt::format("attribute {} of {}: expected one value", name, path));
  const auto get = [&](hid_t native, void* to) {
    SIDESTEP_HDF5(Exit::checkpoint, what, H5Aread(attribute.get(), native, to));
  };
  switch (H5Tget_class(type.get())) {
    case H5T_INTEGER: {
      std::int64_t value = 0;
      get(H5T_NATIVE_INT64, &value);
      return value;
    }
    case H5T_FLOAT: {
      double value = 0;
      get(H5T_NATIVE_DOUBLE, &value);
      return value;
    }
    case H5T_STRING: {
      if (H5Tis_variable_str(type.get()) > 0) {
        char* text = nullptr;
        get(type.get(), &text);
        std::string value = text == nullptr ? "" : text;
        H5free_memory(text);
        return value;
      }
      std::string value(H5Tget_size(type.get()), '\0');
      get(type.get(), value.data());
      return std::string(value.c_str());
    }
    default:
      refuse(fmt::format("attribute {} of {}: expected a number or text, found {}", name, path,
                         hdf5_type_name(type.get())));
  }
}

/// A callback of H5Aiterate2; exceptions must not pass through HDF5.
herr_t collect_name(hid_t, const char* name, const H5A_info_t*, void* names) noexcept {
  try {
    static_cast<std::vector<std::string>*>(names)->emplace_back(name);
    return 0;
  } catch (const std::bad_alloc&) {
    return -1;
  }
}

Attributes Reader::read_attributes(hid_t object, const std::string& path) const {
  std::vector<std::string> names;
  SIDESTEP_HDF5(Exit::checkpoint, fmt::format("checkpoint {}: attributes of {}", name_, path),
                H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, nullptr, &collect_name, &names));
  Attributes attributes;
  for (const std::string& name : names) attributes[name] = read_attribute(object, name, path);
  return attributes;
}

void Reader::read_dataset(hid_t dataset, const std::string& path) {
  const std::string what = fmt::format("checkpoint {}: dataset {}", name_, path);
  const Hdf5Type type(SIDESTEP_HDF5(Exit::checkpoint, what, H5Dget_type(dataset)));
  const Hdf5Space space(SIDESTEP_HDF5(Exit::checkpoint, what, H5Dget_space(dataset)));
  const auto dtype = dtype_of_file(type.get());
  const std::vector<hsize_t> extent = hdf5_extent(space.get());
  if (!dtype)
    refuse(fmt::format("dataset {}: expected float32, float64, int32, int64 or uint8, found {}",
                       path, hdf5_type_name(type.get())));
  if (extent.size() > Shape::kMaxRank || H5Sget_simple_extent_type(space.get()) == H5S_NULL)
    refuse(fmt::format("dataset {}: expected 0 to {} dimensions, found {}", path, Shape::kMaxRank,
                       extent.empty() ? "none and no value" : fmt::format("{}", extent.size())));
  const std::vector<std::int64_t> dims(extent.begin(), extent.end());
  CheckpointTensor tensor{path, Shape(dims), *dtype, {}};
  if (with_data_) {
    const auto attributes = read_attributes(dataset, path);
    tensor.bytes.resize(static_cast<std::size_t>(tensor.shape.numel()) * size_of(*dtype));
    if (!tensor.bytes.empty())
      SIDESTEP_HDF5(Exit::checkpoint, what,
                    H5Dread(dataset, memory_type(*dtype), H5S_ALL, H5S_ALL, H5P_DEFAULT,
                            tensor.bytes.data()));
    compare(fmt::format("dataset {}", path),
            tensor_digest(block_hash(as_text(tensor.bytes)), *dtype, tensor.shape), attributes);
  }
  content_.tensors.push_back(std::move(tensor));
}

void Reader::read_child(hid_t group, hsize_t index, const std::string& path, int depth) {
  const std::string what = fmt::format("checkpoint {}: group {}", name_, path);
  const auto get_name = [&](char* to, std::size_t size) {
    return H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, index, to, size, H5P_DEFAULT);
  };
  const ssize_t length = SIDESTEP_HDF5(Exit::checkpoint, what, get_name(nullptr, 0));
  std::string name(static_cast<std::size_t>(length), '\0');
  SIDESTEP_HDF5(Exit::checkpoint, what, get_name(name.data(), name.size() + 1));
  const std::string child = path == "/" ? "/" + name : path + "/" + name;
  const Hdf5Object object(
      SIDESTEP_HDF5(Exit::checkpoint, what, H5Oopen(group, name.c_str(), H5P_DEFAULT)));
  const H5I_type_t kind = H5Iget_type(object.get());
  if (kind == H5I_GROUP) read_group(object.get(), child, depth + 1);
  if (kind == H5I_DATASET) read_dataset(object.get(), child);
}

void Reader::read_group(hid_t group, const std::string& path, int depth) {
  if (depth > kMaxDepth) refuse(fmt::format("group {}: nested too deeply", path));
  Attributes attributes = read_attributes(group, path);
  if (path == "/") check_marks(attributes);
  Attributes covered = attributes;
  covered.erase(kDigest);
  covered.erase(kComplete);
  if (with_data_ && !attributes.empty())
    compare(fmt::format("attributes of {}", path), attribute_digest(covered), attributes);
  if (path == "/") covered.erase(kFormat);
  if (!covered.empty()) content_.attributes[path] = std::move(covered);
  H5G_info_t info{};
  SIDESTEP_HDF5(Exit::checkpoint, fmt::format("checkpoint {}: group {}", name_, path),
                H5Gget_info(group, &info));
  for (hsize_t i = 0; i < info.nlinks; ++i) read_child(group, i, path, depth);
}

CheckpointContent Reader::read() {
  const Hdf5Group root(SIDESTEP_HDF5(Exit::checkpoint, fmt::format("checkpoint {}", name_),
                                     H5Gopen2(file_.get(), "/", H5P_DEFAULT)));
  read_group(root.get(), "/", 0);
  return std::move(content_);
}

CheckpointContent read_file(const fs::path& path, bool with_data) {
  try {
    const ReadLock lock(path);
    check_seal(lock.file(), path, with_data);
    return Reader(path, with_data).read();
  } catch (const std::bad_alloc&) {
    fail(Exit::checkpoint,
         fmt::format("checkpoint {}: not enough memory to read it", path.string()));
  } catch (const std::length_error&) {
    fail(Exit::checkpoint,
         fmt::format("checkpoint {}: a dataset of impossible size", path.string()));
  }
}

}  // namespace

CheckpointContent read_checkpoint(const fs::path& path) { return read_file(path, true); }

CheckpointContent read_checkpoint_outline(const fs::path& path) { return read_file(path, false); }

}  // namespace sidestep
