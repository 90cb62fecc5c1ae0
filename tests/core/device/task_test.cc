#include "core/device/task.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>

#include "core/device/task_ring.h"
#include "tests/harness/allocation_count.h"

namespace sidestep {
namespace {

using testing::allocation_count;

TEST(Task, DefaultIsEmpty) {
  const Task task;
  EXPECT_FALSE(static_cast<bool>(task));
}

TEST(Task, CallsWhatItHolds) {
  int calls = 0;
  Task task([&calls] { ++calls; });
  EXPECT_TRUE(static_cast<bool>(task));
  task();
  task();
  EXPECT_EQ(calls, 2);
}

TEST(Task, MovingHandsTheCaptureOver) {
  auto token = std::make_shared<int>(5);
  int seen = 0;
  Task first([token, &seen] { seen = *token; });
  EXPECT_EQ(token.use_count(), 2);
  Task second(std::move(first));
  EXPECT_EQ(token.use_count(), 2);
  EXPECT_FALSE(static_cast<bool>(first));
  second();
  EXPECT_EQ(seen, 5);
}

TEST(Task, AssignmentDestroysWhatWasHeld) {
  auto held = std::make_shared<int>(1);
  auto next = std::make_shared<int>(2);
  Task task([held] {});
  task = Task([next] {});
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(next.use_count(), 2);
  task = Task();
  EXPECT_EQ(next.use_count(), 1);
}

TEST(Task, DestructionDestroysTheCaptureOnce) {
  auto token = std::make_shared<int>(1);
  {
    const Task task([token] {});
  }
  EXPECT_EQ(token.use_count(), 1);
}

TEST(Task, HoldsMoveOnlyCaptures) {
  int seen = 0;
  Task task([owned = std::make_unique<int>(9), &seen] { seen = *owned; });
  Task moved = std::move(task);
  moved();
  EXPECT_EQ(seen, 9);
}

TEST(Task, FullCaptureDoesNotAllocate) {
  std::array<char, Task::kCapacity> block{};
  block.back() = 3;
  const std::int64_t before = allocation_count();
  int sum = 0;
  {
    Task task([block] { static_cast<void>(block); });
    Task moved(std::move(task));
    Task assigned;
    assigned = std::move(moved);
    assigned();
    sum += assigned ? 1 : 0;
  }
  EXPECT_EQ(allocation_count(), before);
  EXPECT_EQ(sum, 1);
}

TEST(AllocationCount, SeesAnAllocation) {
  const std::int64_t before = allocation_count();
  const auto owned = std::make_unique<std::array<int, 100>>();
  EXPECT_NE(owned, nullptr);
  EXPECT_GT(allocation_count(), before);
}

TEST(TaskRing, KeepsOrderWhileItGrowsAndWraps) {
  TaskRing ring;
  int next_in = 0;
  int next_out = 0;
  const auto push = [&] {
    const int number = next_in++;
    ring.push(Task([number, &next_out] { EXPECT_EQ(number, next_out++); }));
  };
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 37; ++i) push();
    for (int i = 0; i < 20; ++i) ring.pop()();
  }
  while (!ring.empty()) ring.pop()();
  EXPECT_EQ(next_out, next_in);
  EXPECT_EQ(next_out, 50 * 37);
}

}  // namespace
}  // namespace sidestep
