// The GPU side: what must hold without a GPU, and tests that are skipped there.
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/device/buffer.h"
#include "core/device/device.h"
#include "core/device/stream.h"

namespace sidestep {
namespace {

constexpr Device kGpu{DeviceKind::cuda, 0};

TEST(Device, Names) {
  EXPECT_EQ(to_string(Device{}), "cpu");
  EXPECT_EQ(to_string(Device{DeviceKind::cuda, 1}), "cuda:1");
}

TEST(CudaProbe, SaysWhyThereIsNoGpu) {
  const CudaProbe probe = probe_cuda();
  EXPECT_GE(probe.devices, 0);
  EXPECT_EQ(probe.explanation.empty(), probe.devices > 0);
  EXPECT_TRUE(probe.compiled || probe.devices == 0);
}

TEST(CudaProbe, AGpuThatIsNotThereIsRefused) {
  const Device missing{DeviceKind::cuda, probe_cuda().devices};
  try {
    Stream::create(missing, "compute");
    FAIL() << "a stream on " << to_string(missing);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::device);
    EXPECT_NE(std::string(error.what()).find(to_string(missing)), std::string::npos);
  }
  EXPECT_THROW(Buffer(missing, 16), Error);
}

class Cuda : public ::testing::Test {
 protected:
  void SetUp() override {
    const CudaProbe probe = probe_cuda();
    if (probe.devices == 0) GTEST_SKIP() << "no GPU: " << probe.explanation;
  }
};

View floats(const Buffer& buffer) {
  return buffer.view(0, {static_cast<std::int64_t>(buffer.size() / sizeof(float))}, DType::f32);
}

TEST_F(Cuda, BuffersAreZeroAndRoundTrip) {
  Stream stream = Stream::create(kGpu, "copy");
  EXPECT_NE(stream.native(), nullptr);
  const Buffer host(Device{}, 4096, Buffer::Kind::pinned);
  const Buffer back(Device{}, 4096, Buffer::Kind::pinned);
  const Buffer device(kGpu, 4096);
  std::iota(floats(back).as<float>(), floats(back).as<float>() + 1024, 1.0f);
  copy(stream, floats(back), floats(device));
  stream.synchronize();
  for (int i = 0; i < 1024; ++i) ASSERT_EQ(floats(back).as<float>()[i], 0.0f);
  std::iota(floats(host).as<float>(), floats(host).as<float>() + 1024, 1.0f);
  copy(stream, floats(device), floats(host));
  copy(stream, floats(back), floats(device));
  stream.synchronize();
  for (int i = 0; i < 1024; ++i) ASSERT_EQ(floats(back).as<float>()[i], static_cast<float>(i + 1));
}

TEST_F(Cuda, TooMuchMemoryIsOneClearError) {
  const std::size_t wanted = std::size_t{1} << 50;
  try {
    const Buffer buffer(kGpu, wanted);
    FAIL() << "a petabyte was granted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::device);
    EXPECT_NE(std::string(error.what()).find(std::to_string(wanted)), std::string::npos);
  }
  EXPECT_NO_THROW(Buffer(kGpu, 16)) << "the error must not stick";
}

TEST_F(Cuda, HostWorkIsOrderedWithCopies) {
  Stream stream = Stream::create(kGpu, "compute");
  const Buffer host(Device{}, 4096, Buffer::Kind::pinned);
  const Buffer device(kGpu, 4096);
  float* const value = floats(host).as<float>();
  std::vector<float> seen;
  for (int i = 1; i <= 50; ++i) {
    stream.host([value, i] { *value = static_cast<float>(i); });
    copy(stream, floats(device), floats(host));
    fill_zero(stream, floats(host));
    copy(stream, floats(host), floats(device));
    stream.host([value, &seen] { seen.push_back(*value); });
  }
  stream.synchronize();
  ASSERT_EQ(seen.size(), 50u);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], i + 1);
}

TEST_F(Cuda, WaitsWorkBetweenAllKindsOfStreams) {
  Stream first = Stream::create(kGpu, "first");
  Stream second = Stream::create(kGpu, "second");
  Stream cpu = Stream::create({}, "cpu");
  int value = 0;
  for (int i = 0; i < 300; ++i) {  // more events than a ring holds at first
    first.host([&value] { ++value; });
    second.wait(first.record());
    second.host([&value] { value *= 2; });
    cpu.wait(second.record());
    cpu.host([&value] { value %= 1000; });
    first.wait(cpu.record());
  }
  first.synchronize();
  int wanted = 0;
  for (int i = 0; i < 300; ++i) wanted = (wanted + 1) * 2 % 1000;
  EXPECT_EQ(value, wanted);
}

TEST_F(Cuda, ABlockedStreamDoesNotBlockAnother) {
  Stream blocked = Stream::create(kGpu, "blocked");
  Stream other = Stream::create(kGpu, "other");
  const auto gate = std::make_shared<Timeline>();
  blocked.wait(Event(gate, 1));
  const Event end = blocked.record();
  other.host([&gate] { gate->advance(1); });
  end.wait();
  EXPECT_TRUE(end.done());
}

TEST_F(Cuda, FailuresPassBetweenStreams) {
  Stream first = Stream::create(kGpu, "first");
  Stream second = Stream::create(kGpu, "second");
  Stream cpu = Stream::create({}, "cpu");
  std::atomic<bool> ran = false;
  first.host([] { throw std::runtime_error("root"); });
  second.wait(first.record());
  second.host([&ran] { ran = true; });
  cpu.wait(second.record());
  cpu.host([&ran] { ran = true; });
  EXPECT_THROW(cpu.synchronize(), std::runtime_error);
  EXPECT_THROW(second.synchronize(), std::runtime_error);
  EXPECT_THROW(first.synchronize(), std::runtime_error);
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace sidestep
