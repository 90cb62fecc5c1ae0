#include "io/memory_dataset.h"

#include <fmt/format.h>

#include <utility>

#include "core/base/error.h"
#include "io/data_checks.h"

namespace sidestep {

std::string scaling_rule(bool bytes, const Normalisation& normalisation) {
  return fmt::format("{}, then {}", bytes ? "uint8 scaled by 1/255" : "float values as they are",
                     normalisation.describe());
}

MemoryDataset::MemoryDataset(std::string source, Pixels pixels, std::vector<std::int32_t> labels,
                             Shape sample, std::int64_t classes, const Normalisation& normalisation)
    : source_(std::move(source)),
      pixels_(std::move(pixels)),
      labels_(std::move(labels)),
      sample_(sample),
      classes_(classes),
      normalisation_(normalisation) {
  const std::size_t held = std::visit([](const auto& p) { return p.size(); }, pixels_);
  check(held == labels_.size() * static_cast<std::size_t>(sample_.numel()),
        "pixels and labels of a data set do not fit together");
}

std::string MemoryDataset::description() const {
  return fmt::format("{}: {}; {}", source_, describe_samples(size(), sample_, classes_),
                     scaling_rule(pixels_.index() == 0, normalisation_));
}

std::uint64_t MemoryDataset::digest() const { return data_digest(sample_, classes_, labels_); }

void MemoryDataset::read(std::span<const std::int64_t> ids, HostBatch out) {
  check_ids(ids, size());
  const auto row = static_cast<std::size_t>(sample_.numel());
  std::visit(
      [&](const auto& pixels) {
        for (std::size_t i = 0; i < ids.size(); ++i)
          normalisation_.apply(pixels.data() + static_cast<std::size_t>(ids[i]) * row, row,
                               out.x + i * row);
      },
      pixels_);
  for (std::size_t i = 0; i < ids.size(); ++i) out.y[i] = labels_[static_cast<std::size_t>(ids[i])];
}

}  // namespace sidestep
