#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "io/storage_thread.h"
#include "tests/harness/allocation_count.h"
#include "tests/io/files.h"

namespace sidestep {
namespace {

/// Holds the storage thread inside a job until opened.
class Gate {
 public:
  explicit Gate(StorageThread& storage) {
    auto inside = entered_.get_future();
    held_ = storage.save([this] {
      entered_.set_value();
      open_.get_future().wait();
    });
    inside.wait();
  }
  void open() {
    open_.set_value();
    held_.get();
  }

 private:
  std::promise<void> entered_, open_;
  std::future<void> held_;
};

TEST(StorageThread, ReadsOvertakeQueuedSaves) {
  StorageThread storage;
  std::string order;
  Gate gate(storage);
  auto save1 = storage.save([&] { order += 'a'; });
  auto save2 = storage.save([&] { order += 'b'; });
  auto read1 = storage.read([&] { order += '1'; });
  auto read2 = storage.read([&] { order += '2'; });
  gate.open();
  for (auto* f : {&save1, &save2, &read1, &read2}) f->get();
  EXPECT_EQ(order, "12ab");
}

TEST(StorageThread, FailuresReachTheCallerAndTheThreadGoesOn) {
  StorageThread storage;
  auto bad = storage.save([] { fail(Exit::checkpoint, "no space"); });
  EXPECT_EQ(test::error_of(Exit::checkpoint, [&] { bad.get(); }), "no space");
  EXPECT_EQ(test::error_of(Exit::data, [&] { storage.read_now([] { fail(Exit::data, "torn"); }); }),
            "torn");
  int ran = 0;
  storage.read_now([&] { ++ran; });
  EXPECT_EQ(ran, 1);
}

TEST(StorageThread, AllJobsRunOnOneThread) {
  StorageThread storage;
  std::thread::id first, second, nested;
  storage.read_now([&] {
    first = std::this_thread::get_id();
    storage.read_now([&] { nested = std::this_thread::get_id(); });
  });
  storage.save([&] { second = std::this_thread::get_id(); }).get();
  EXPECT_NE(first, std::this_thread::get_id());
  EXPECT_EQ(first, second);
  EXPECT_EQ(first, nested);
}

TEST(StorageThread, FinishesQueuedJobsBeforeItEnds) {
  std::atomic<int> ran{0};
  {
    StorageThread storage;
    for (int i = 0; i < 20; ++i) {
      storage.save([&] { ++ran; });
      storage.read([&] { ++ran; });
    }
  }
  EXPECT_EQ(ran, 40);
}

TEST(StorageThread, ManyThreadsReadAtOnce) {
  StorageThread storage;
  int sum = 0;  // touched by the storage thread only
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) storage.read_now([&] { ++sum; });
    });
  for (std::thread& t : threads) t.join();
  storage.read_now([&] { EXPECT_EQ(sum, 800); });
}

TEST(StorageThread, ReadNowAllocatesNothing) {
  StorageThread storage;
  int sum = 0;
  const std::function<void()> job = [&sum] { ++sum; };
  storage.read_now(job);
  const std::int64_t before = testing::allocation_count();
  for (int i = 0; i < 100; ++i) storage.read_now(job);
  EXPECT_EQ(testing::allocation_count(), before);
  EXPECT_EQ(sum, 101);
}

}  // namespace
}  // namespace sidestep
