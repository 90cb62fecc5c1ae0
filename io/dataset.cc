#include "io/dataset.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "io/hdf5_dataset.h"
#include "io/idx_dataset.h"
#include "io/synthetic_dataset.h"

namespace sidestep {
namespace {

constexpr const char* kFashionMnist = "/usr/share/datasets/fashion-mnist";
constexpr const char* kKinds =
    "fashion-mnist[:DIR], idx:DIR, hdf5:FILE[,FILE...][;test=FILE,...] or "
    "synthetic[:COUNT[xHxWxC[xCLASSES]]]";

DataPair open_fashion_mnist(const std::string& folder, std::optional<std::int64_t> classes) {
  return open_idx(
      folder.empty() ? kFashionMnist : folder, classes,
      "; install the package dataset-fashion-mnist (apt install dataset-fashion-mnist), "
      "or name the folder: fashion-mnist:DIR");
}

DataPair open_synthetic(const std::string& text, std::uint64_t seed,
                        std::optional<std::int64_t> classes) {
  SyntheticShape shape = parse_synthetic(text);
  if (classes && *classes < shape.classes)
    fail(Exit::settings, fmt::format("number of classes: expected at least the {} of the synthetic "
                                     "data, found {}",
                                     shape.classes, *classes));
  if (classes) shape.classes = *classes;
  DataPair pair;
  pair.train = std::make_unique<SyntheticDataset>(shape, seed, SyntheticDataset::Part::train);
  shape.count = std::max<std::int64_t>(1, shape.count / 4);
  pair.test = std::make_unique<SyntheticDataset>(shape, seed, SyntheticDataset::Part::test);
  return pair;
}

}  // namespace

DataPair open_data(const std::string& spec, std::uint64_t seed, StorageThread& storage,
                   std::optional<std::int64_t> classes) {
  const std::size_t colon = spec.find(':');
  const std::string kind = spec.substr(0, colon);
  const std::string rest = colon == std::string::npos ? "" : spec.substr(colon + 1);
  if (kind == "fashion-mnist") return open_fashion_mnist(rest, classes);
  if (kind == "synthetic") return open_synthetic(rest, seed, classes);
  if (kind == "idx" && !rest.empty()) return open_idx(rest, classes, "");
  if (kind == "hdf5" && !rest.empty()) return open_hdf5_data(parse_hdf5(rest), classes, storage);
  fail(Exit::settings, fmt::format("data: expected {}, found '{}'", kKinds, spec));
}

}  // namespace sidestep
