// Dense row-major shapes of up to kMaxRank dimensions; a plain value without heap storage.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace sidestep {

class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims);
  explicit Shape(std::span<const std::int64_t> dims);

  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return dims_[static_cast<std::size_t>(i)]; }
  std::int64_t& operator[](int i) { return dims_[static_cast<std::size_t>(i)]; }
  std::span<const std::int64_t> dims() const { return {dims_.data(), static_cast<std::size_t>(rank_)}; }
  /// Product of the dimensions; 1 for rank 0.
  std::int64_t numel() const;
  /// Product of all dimensions but the first: elements per row of a batch.
  std::int64_t row_numel() const;
  bool operator==(const Shape& other) const;

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

/// "[64, 28, 28, 1]"
std::string to_string(const Shape& shape);

}  // namespace sidestep
