#include "core/base/shape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/error.h"

namespace sidestep {
namespace {

TEST(Shape, DefaultIsAScalar) {
  const Shape shape;
  EXPECT_EQ(shape.rank(), 0);
  EXPECT_EQ(shape.numel(), 1);
  EXPECT_EQ(shape.row_numel(), 1);
  EXPECT_EQ(to_string(shape), "[]");
}

TEST(Shape, CountsElementsAndRows) {
  const Shape shape{64, 28, 28, 3};
  EXPECT_EQ(shape.rank(), 4);
  EXPECT_EQ(shape[1], 28);
  EXPECT_EQ(shape.numel(), 64 * 28 * 28 * 3);
  EXPECT_EQ(shape.row_numel(), 28 * 28 * 3);
  EXPECT_EQ(to_string(shape), "[64, 28, 28, 3]");
}

TEST(Shape, EmptyBatchHasRowsOfFullSize) {
  const Shape shape{0, 7};
  EXPECT_EQ(shape.numel(), 0);
  EXPECT_EQ(shape.row_numel(), 7);
}

TEST(Shape, CountsBeyond32Bits) {
  EXPECT_EQ((Shape{70000, 70000}).numel(), std::int64_t{4900000000});
}

TEST(Shape, EqualityComparesRankAndDimensions) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2}), (Shape{2, 1}));
  EXPECT_NE(Shape{}, (Shape{1}));
}

TEST(Shape, DimensionsCanBeSet) {
  Shape shape{2, 3};
  shape[0] = 5;
  EXPECT_EQ(shape, (Shape{5, 3}));
}

TEST(Shape, ComesFromASpanAndGoesToOne) {
  const std::vector<std::int64_t> dims{1, 2, 3, 4, 5, 6};
  const Shape shape{std::span<const std::int64_t>(dims)};
  EXPECT_EQ(shape.rank(), Shape::kMaxRank);
  EXPECT_TRUE(std::equal(dims.begin(), dims.end(), shape.dims().begin(), shape.dims().end()));
}

TEST(Shape, SevenDimensionsAreTooMany) { EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1}), Error); }

TEST(DType, SizesAreThoseOfTheTypes) {
  EXPECT_EQ(size_of(dtype_of<float>), sizeof(float));
  EXPECT_EQ(size_of(dtype_of<double>), sizeof(double));
  EXPECT_EQ(size_of(dtype_of<std::int32_t>), 4u);
  EXPECT_EQ(size_of(dtype_of<std::int64_t>), 8u);
  EXPECT_EQ(size_of(dtype_of<std::uint8_t>), 1u);
  EXPECT_EQ(to_string(DType::f32), "float32");
}

}  // namespace
}  // namespace sidestep
