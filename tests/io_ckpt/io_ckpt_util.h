// What the tests of outputs share: a folder that is removed at the end, a checkpoint's content, and
// the error a call ends with.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "io/checkpoint_file.h"

namespace sidestep::testing {

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "sidestep-io-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp " + name);
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }
  /// Names in the folder, hidden ones too.
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      found.push_back(entry.path().filename().string());
    std::ranges::sort(found);
    return found;
  }

 private:
  std::filesystem::path path_;
};

inline std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline void spill(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

template <class T>
CheckpointTensor make_tensor(const std::string& path, const Shape& shape,
                             const std::vector<T>& values) {
  CheckpointTensor tensor{path, shape, dtype_of<T>, {}};
  tensor.bytes.resize(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

/// Every dtype, a scalar, an empty tensor, and every kind of attribute; paths in order.
inline CheckpointContent sample_content(std::int64_t step = 7) {
  CheckpointContent content;
  std::vector<float> weights(5000);
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i] = static_cast<float>(i) * 0.25f + static_cast<float>(step);
  content.tensors = {
      make_tensor<std::int64_t>("/data/order", {4}, {3, 1, 2, std::int64_t{1} << 40}),
      make_tensor<std::uint8_t>("/data/seen", {3}, {0, 127, 255}),
      make_tensor<float>("/model/params/conv1.bias", {2, 3}, {1, -2, 3.5f, 0, 1e-30f, 6}),
      make_tensor<float>("/model/params/conv1.weight", {50, 100}, weights),
      make_tensor<double>("/optimizer/count", Shape{}, {0.1}),
      make_tensor<std::int32_t>("/sync/rank/0/empty", {0, 4}, {}),
  };
  content.attributes["/run"] = {{"step", step},
                                {"lr", 0.1},
                                {"config", std::string("batch = 64\nname = \xc3\xbc\n")},
                                {"empty", std::string()}};
  content.attributes["/data"] = {{"epoch", std::int64_t{3}}};
  return content;
}

inline void expect_equal(const CheckpointContent& a, const CheckpointContent& b) {
  EXPECT_EQ(a.attributes, b.attributes);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    EXPECT_EQ(a.tensors[i].path, b.tensors[i].path);
    EXPECT_EQ(a.tensors[i].shape, b.tensors[i].shape);
    EXPECT_EQ(a.tensors[i].dtype, b.tensors[i].dtype);
    EXPECT_EQ(a.tensors[i].bytes, b.tensors[i].bytes);
  }
}

/// The message of the Error with this code that `call` ends with; a test failure and "" otherwise.
template <class F>
std::string error_of(Exit code, F&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "expected an error";
  return "";
}

/// Expects each of `parts` in `text`.
inline void expect_names(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" not in: " << text;
}

/// HDF5's own end of the file, from the superblock.
inline std::uint64_t hdf5_end(const std::string& file) {
  std::uint64_t end = 0;
  std::memcpy(&end, file.data() + 28, sizeof end);
  return end;
}

}  // namespace sidestep::testing
