#include "core/device/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "core/base/error.h"

namespace sidestep {
namespace {

std::string message_of(Exit wanted, auto call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), wanted) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

bool all_zero(const std::byte* data, std::size_t bytes) {
  return std::all_of(data, data + bytes, [](std::byte b) { return b == std::byte{0}; });
}

TEST(Buffer, IsAlignedAndZero) {
  for (const std::size_t bytes : {1u, 63u, 64u, 1000u, 1u << 20}) {
    const Buffer buffer(Device{}, bytes);
    EXPECT_EQ(buffer.size(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0u);
    EXPECT_TRUE(all_zero(buffer.data(), bytes));
  }
}

TEST(Buffer, ZeroEvenInMemoryUsedBefore) {
  for (int round = 0; round < 20; ++round) {
    const Buffer buffer(Device{}, 4096);
    ASSERT_TRUE(all_zero(buffer.data(), 4096));
    std::fill_n(buffer.data(), 4096, std::byte{0xab});
  }
}

TEST(Buffer, DefaultAndEmpty) {
  const Buffer nothing;
  EXPECT_EQ(nothing.size(), 0u);
  EXPECT_EQ(nothing.data(), nullptr);
  const Buffer empty(Device{}, 0);
  EXPECT_EQ(empty.size(), 0u);
  EXPECT_NE(empty.data(), nullptr);
  EXPECT_EQ(empty.view(0, {0, 5}, DType::f32).numel(), 0);
}

TEST(Buffer, MovesItsMemory) {
  Buffer first(Device{}, 100);
  std::byte* const place = first.data();
  Buffer second(std::move(first));
  EXPECT_EQ(second.data(), place);
  EXPECT_EQ(first.data(), nullptr);
  Buffer third(Device{}, 7);
  third = std::move(second);
  EXPECT_EQ(third.data(), place);
  EXPECT_EQ(third.size(), 100u);
}

TEST(Buffer, PinnedIsHostMemoryWithOrWithoutAGpu) {
  Buffer buffer(Device{DeviceKind::cuda, 0}, 4096, Buffer::Kind::pinned);
  EXPECT_EQ(buffer.device(), Device{});
  EXPECT_TRUE(all_zero(buffer.data(), 4096));
  buffer.data()[4095] = std::byte{1};
  const Buffer moved(std::move(buffer));
  EXPECT_EQ(moved.data()[4095], std::byte{1});
}

TEST(Buffer, TooMuchMemoryNamesWantedAndFree) {
  const std::size_t wanted = std::size_t{1} << 50;
  const std::string text = message_of(Exit::device, [&] { const Buffer b(Device{}, wanted); });
  EXPECT_NE(text.find(std::to_string(wanted)), std::string::npos) << text;
  EXPECT_NE(text.find("bytes free"), std::string::npos) << text;
}

TEST(Buffer, LargestSizeDoesNotWrapAround) {
  for (const std::size_t less : {0u, 1u, 62u, 63u, 64u}) {
    const std::size_t wanted = std::numeric_limits<std::size_t>::max() - less;
    message_of(Exit::device, [&] { const Buffer b(Device{}, wanted); });
  }
}

TEST(BufferView, IsAWindowAtAnOffset) {
  const Buffer buffer(Device{}, 64);
  const View view = buffer.view(16, {2, 3}, DType::f32);
  EXPECT_EQ(view.data, buffer.data() + 16);
  EXPECT_EQ(view.numel(), 6);
  EXPECT_EQ(view.bytes(), 24u);
  EXPECT_EQ(view.device, Device{});
  EXPECT_EQ(reinterpret_cast<std::byte*>(view.as<float>()), view.data);
}

TEST(BufferView, MustFit) {
  const Buffer buffer(Device{}, 64);
  EXPECT_NO_THROW(buffer.view(0, {16}, DType::f32));
  EXPECT_NO_THROW(buffer.view(64, {0}, DType::f32));
  EXPECT_THROW(buffer.view(0, {17}, DType::f32), Error);
  EXPECT_THROW(buffer.view(4, {16}, DType::f32), Error);
  EXPECT_THROW(buffer.view(68, {0}, DType::f32), Error);
  EXPECT_THROW(buffer.view(std::numeric_limits<std::size_t>::max() - 3, {1}, DType::f32), Error);
}

TEST(BufferView, ShapesThatOverflowOrAreNegativeAreRefused) {
  const Buffer buffer(Device{}, 64);
  const std::int64_t big = std::int64_t{1} << 32;
  EXPECT_THROW(buffer.view(0, {big, big}, DType::u8), Error);  // 2^64 bytes: 0 if it wrapped
  EXPECT_THROW(buffer.view(0, {big, big / 4}, DType::f32), Error);
  EXPECT_THROW(buffer.view(0, {-1}, DType::u8), Error);
  EXPECT_THROW(buffer.view(0, {-1, -4}, DType::u8), Error);
}

TEST(BufferView, MustBeAlignedForItsType) {
  const Buffer buffer(Device{}, 64);
  EXPECT_NO_THROW(buffer.view(4, {1}, DType::f32));
  EXPECT_NO_THROW(buffer.view(3, {1}, DType::u8));
  EXPECT_THROW(buffer.view(2, {1}, DType::f32), Error);
  EXPECT_THROW(buffer.view(4, {1}, DType::f64), Error);
}

TEST(BufferView, TypedAccessChecksTheType) {
  const Buffer buffer(Device{}, 64);
  const View view = buffer.view(0, {4}, DType::i32);
  EXPECT_NO_THROW(view.as<std::int32_t>());
  const std::string text = message_of(Exit::internal, [&] { view.as<float>(); });
  EXPECT_NE(text.find("float32"), std::string::npos) << text;
  EXPECT_NE(text.find("int32 on cpu"), std::string::npos) << text;
}

class BufferStreams : public ::testing::TestWithParam<StreamMode> {};

TEST_P(BufferStreams, CopyAndFillRunInOrder) {
  Stream stream = Stream::create({}, "copy", GetParam());
  const Buffer from(Device{}, 4000);
  const Buffer to(Device{}, 4000);
  const View source = from.view(0, {1000}, DType::f32);
  const View target = to.view(0, {10, 100}, DType::f32);
  std::iota(source.as<float>(), source.as<float>() + 1000, 1.0f);
  copy(stream, target, source);
  fill_zero(stream, source);
  stream.synchronize();
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(target.as<float>()[i], static_cast<float>(i + 1));
  EXPECT_TRUE(all_zero(from.data(), from.size()));
}

TEST_P(BufferStreams, CopyTouchesItsBytesOnly) {
  Stream stream = Stream::create({}, "copy", GetParam());
  const Buffer from(Device{}, 16);
  const Buffer to(Device{}, 48);
  std::fill_n(from.data(), 16, std::byte{7});
  copy(stream, to.view(16, {16}, DType::u8), from.view(0, {16}, DType::u8));
  fill_zero(stream, to.view(20, {4}, DType::u8));
  stream.synchronize();
  EXPECT_TRUE(all_zero(to.data(), 16));
  EXPECT_TRUE(all_zero(to.data() + 20, 4));
  EXPECT_TRUE(all_zero(to.data() + 32, 16));
  EXPECT_EQ(to.data()[16], std::byte{7});
  EXPECT_EQ(to.data()[24], std::byte{7});
}

TEST_P(BufferStreams, CopyOfUnequalSizesIsRefused) {
  Stream stream = Stream::create({}, "copy", GetParam());
  const Buffer buffer(Device{}, 64);
  EXPECT_THROW(copy(stream, buffer.view(0, {4}, DType::f32), buffer.view(32, {5}, DType::f32)),
               Error);
}

TEST_P(BufferStreams, EmptyCopyIsNothing) {
  Stream stream = Stream::create({}, "copy", GetParam());
  const View empty{nullptr, {0}, DType::f32, {}};
  copy(stream, empty, empty);
  fill_zero(stream, empty);
  stream.synchronize();
}

INSTANTIATE_TEST_SUITE_P(All, BufferStreams,
                         ::testing::Values(StreamMode::threaded, StreamMode::direct));

}  // namespace
}  // namespace sidestep
