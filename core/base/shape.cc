#include "core/base/shape.h"

#include <algorithm>

#include "core/base/error.h"

namespace sidestep {

Shape::Shape(std::initializer_list<std::int64_t> dims)
    : Shape(std::span<const std::int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const std::int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  check(dims.size() <= static_cast<std::size_t>(kMaxRank), "a shape has at most 6 dimensions");
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

std::int64_t Shape::numel() const {
  std::int64_t n = 1;
  for (const auto d : dims()) n *= d;
  return n;
}

std::int64_t Shape::row_numel() const {
  std::int64_t n = 1;
  for (int i = 1; i < rank_; ++i) n *= (*this)[i];
  return n;
}

bool Shape::operator==(const Shape& other) const {
  return std::ranges::equal(dims(), other.dims());
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.rank(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace sidestep
