#include "io/prefetch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "io/memory_dataset.h"
#include "io/sampler.h"
#include "tests/harness/allocation_count.h"
#include "tests/io/files.h"

namespace sidestep {
namespace {

/// 100 samples of 2x2x1 whose pixels and labels tell the sample.
MemoryDataset counted_data() {
  std::vector<float> pixels;
  std::vector<std::int32_t> labels;
  for (int id = 0; id < 100; ++id) {
    for (int i = 0; i < 4; ++i) pixels.push_back(static_cast<float>(10 * id + i));
    labels.push_back(id);
  }
  return MemoryDataset("counted", std::move(pixels), std::move(labels), Shape{2, 2, 1}, 100,
                       {0, 1});
}

/// Requests for steps 0, 1, ... of `count` samples from 3 * step on, until `steps` are given.
struct Requests {
  std::int64_t steps = 0, count = 0;
  std::int64_t given = 0;
  bool operator()(LoadRequest& request) {
    if (given == steps) return false;
    request.step = given++;
    request.epoch = 1;
    for (std::int64_t i = 0; i < count; ++i) request.ids.push_back((3 * request.step + i) % 100);
    return true;
  }
};

void expect_batch(const LoadedBatch& batch, std::int64_t step, std::int64_t count) {
  ASSERT_EQ(batch.step, step);
  ASSERT_EQ(batch.count, count);
  ASSERT_EQ(batch.x.shape, (Shape{count, 2, 2, 1}));
  ASSERT_EQ(batch.y.shape, Shape{count});
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t id = (3 * step + i) % 100;
    ids.push_back(id);
    EXPECT_EQ(batch.y.as<std::int32_t>()[i], id);
    EXPECT_EQ(batch.x.as<float>()[4 * i + 3], static_cast<float>(10 * id + 3));
  }
  EXPECT_EQ(batch.digest, index_digest(ids, 1));
}

TEST(Prefetcher, BatchesComeInOrder) {
  MemoryDataset data = counted_data();
  Prefetcher loader(data, 5, 3, Requests{40, 5}, nullptr);
  std::int64_t waited = 0;
  for (std::int64_t step = 0; step < 40; ++step) {
    const LoadedBatch batch = loader.take(waited);
    expect_batch(batch, step, 5);
    loader.release(batch.slot, Event());
  }
  test::error_of(Exit::internal, [&] { loader.take(waited); });
  EXPECT_GE(waited, 0);
}

TEST(Prefetcher, ARankWithoutSamplesGetsEmptyBatches) {
  MemoryDataset data = counted_data();
  Prefetcher loader(data, 0, 1, Requests{3, 0}, nullptr);
  std::int64_t waited = 0;
  for (std::int64_t step = 0; step < 3; ++step) {
    const LoadedBatch batch = loader.take(waited);
    expect_batch(batch, step, 0);
    loader.release(batch.slot, Event());
  }
}

TEST(Prefetcher, ASlotIsKeptUntilItsCopyIsOver) {
  MemoryDataset data = counted_data();
  auto copies = std::make_shared<Timeline>();
  Prefetcher loader(data, 4, 1, Requests{2, 4}, nullptr);
  std::int64_t waited = 0;
  const LoadedBatch first = loader.take(waited);
  loader.release(first.slot, Event(copies, 1));
  // With one slot, step 1 can only be loaded over step 0 after the copy.
  auto second = std::async(std::launch::async, [&] { return loader.take(waited); });
  EXPECT_EQ(second.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  expect_batch(first, 0, 4);
  copies->advance(1);
  expect_batch(second.get(), 1, 4);
}

TEST(Prefetcher, AFailureComesAfterWhatWasLoaded) {
  MemoryDataset data = counted_data();
  Requests requests{5, 2};
  const auto next = [requests](LoadRequest& request) mutable {
    if (requests.given == 2) fail(Exit::data, "shard 5 is torn");
    return requests(request);
  };
  Prefetcher loader(data, 2, 4, next, nullptr);
  std::int64_t waited = 0;
  expect_batch(loader.take(waited), 0, 2);
  expect_batch(loader.take(waited), 1, 2);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(test::error_of(Exit::data, [&] { loader.take(waited); }), "shard 5 is torn");
}

TEST(Prefetcher, IdsOutsideTheDataAreRefused) {
  MemoryDataset data = counted_data();
  const auto next = [](LoadRequest& request) {
    request.ids = {3, 100};
    return true;
  };
  Prefetcher loader(data, 2, 1, next, nullptr);
  std::int64_t waited = 0;
  EXPECT_NE(test::error_of(Exit::internal, [&] { loader.take(waited); }).find("sample 100"),
            std::string::npos);
}

TEST(Prefetcher, EndsWhileSlotsAreInUse) {
  MemoryDataset data = counted_data();
  {
    Prefetcher all_taken(data, 4, 2, Requests{1000, 4}, nullptr);
    std::int64_t waited = 0;
    all_taken.take(waited);
    all_taken.take(waited);
  }
  auto never = std::make_shared<Timeline>();
  {
    Prefetcher copy_never_ends(data, 4, 1, Requests{1000, 4}, nullptr);
    std::int64_t waited = 0;
    copy_never_ends.release(copy_never_ends.take(waited).slot, Event(never, 1));
  }
  { const Prefetcher untouched(data, 4, 2, Requests{1000, 4}, nullptr); }
}

TEST(Prefetcher, AllocatesNothingOnceWarm) {
  MemoryDataset data = counted_data();
  Prefetcher loader(data, 8, 3, Requests{200, 8}, nullptr);
  std::int64_t waited = 0, before = 0;
  for (std::int64_t step = 0; step < 200; ++step) {
    if (step == 10) before = testing::allocation_count();
    const LoadedBatch batch = loader.take(waited);
    loader.release(batch.slot, Event());
  }
  EXPECT_EQ(testing::allocation_count(), before);
}

TEST(Prefetcher, TracesEachLoad) {
  MemoryDataset data = counted_data();
  Tracer tracer(16);
  tracer.set_window(1, 2);
  {
    Prefetcher loader(data, 2, 2, Requests{4, 2}, &tracer);
    std::int64_t waited = 0;
    for (int i = 0; i < 4; ++i) loader.release(loader.take(waited).slot, Event());
  }
  const auto spans = tracer.spans();
  ASSERT_EQ(spans.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(spans[i].step, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(spans[i].row, TraceRow::input);
    EXPECT_LE(spans[i].begin_ns, spans[i].end_ns);
  }
}

}  // namespace
}  // namespace sidestep
