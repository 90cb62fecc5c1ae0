#include "comm/reducer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "tests/comm/stores.h"

namespace sidestep::testing {
namespace {

struct Launched {
  int bucket;
  std::uint64_t value;  ///< of the event
};

class ReducerTest : public ::testing::Test {
 protected:
  Reducer make(bool hold) {
    return {plan_, hold, [this](int bucket, const Event& ready) {
              launched_.push_back({bucket, ready.value()});
            }};
  }
  Event event(std::uint64_t value) const { return {timeline_, value}; }
  std::vector<int> launched_buckets() const {
    std::vector<int> buckets;
    for (const Launched& l : launched_) buckets.push_back(l.bucket);
    return buckets;
  }

  const ParamStore store_ = store_of({16, 16, 16, 16, 16, 16, 16});
  const BucketPlan plan_ = plan_buckets(store_, {.bytes = 128, .first_bytes = 64});  // 1 2 2 2
  std::shared_ptr<Timeline> timeline_ = std::make_shared<Timeline>();
  std::vector<Launched> launched_;
};

TEST_F(ReducerTest, LaunchesABucketWithItsLastGradient) {
  Reducer reducer = make(false);
  reducer.grad_ready(0, event(1));
  EXPECT_EQ(launched_buckets(), std::vector<int>{0});
  reducer.grad_ready(1, event(2));
  EXPECT_EQ(launched_buckets(), std::vector<int>{0});
  reducer.grad_ready(2, event(5));
  ASSERT_EQ(launched_buckets(), (std::vector<int>{0, 1}));
  EXPECT_EQ(launched_[1].value, 5u);
}

TEST_F(ReducerTest, LaunchesInFixedOrderUnderRandomReadiness) {
  Reducer reducer = make(false);
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    launched_.clear();
    reducer.begin();
    std::vector<ParamId> order = store_.order();
    for (std::size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[random_below(rng_key(seed, "order"), i, i)]);
    std::vector<std::uint64_t> reported(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      reported[static_cast<std::size_t>(order[i])] = i + 1;
      reducer.grad_ready(order[i], event(i + 1));
    }
    ASSERT_EQ(launched_buckets(), (std::vector<int>{0, 1, 2, 3})) << "seed " << seed;
    for (const Launched& l : launched_) {
      std::uint64_t latest = 0;
      for (const ParamId p : plan_.buckets[static_cast<std::size_t>(l.bucket)].params)
        latest = std::max(latest, reported[static_cast<std::size_t>(p)]);
      EXPECT_EQ(l.value, latest);
    }
  }
}

TEST_F(ReducerTest, HeldBucketsGoWithTheFlush) {
  Reducer reducer = make(true);
  for (const ParamId p : store_.order()) reducer.grad_ready(p, event(1));
  EXPECT_TRUE(launched_.empty());
  reducer.flush(event(9));
  EXPECT_EQ(launched_buckets(), (std::vector<int>{0, 1, 2, 3}));
  for (const Launched& l : launched_) EXPECT_EQ(l.value, 9u);
}

TEST_F(ReducerTest, FlushLaunchesWhatNeverBecameFull) {
  Reducer reducer = make(false);
  for (const ParamId p : {0, 1, 3, 4}) reducer.grad_ready(p, event(2));
  reducer.flush(event(9));
  ASSERT_EQ(launched_buckets(), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(launched_[1].value, 9u);
  EXPECT_EQ(launched_[2].value, 2u) << "full, but behind one that was not";
}

TEST_F(ReducerTest, LastReadsAreTheLatestOfABucket) {
  Reducer reducer = make(false);
  reducer.last_read(0, event(3));
  reducer.last_read(2, event(7));
  reducer.last_read(1, event(4));
  reducer.last_read(3, event(5));  // 4 is never reported
  reducer.flush(event(9));
  EXPECT_EQ(reducer.last_reads()[0].value(), 3u);
  EXPECT_EQ(reducer.last_reads()[1].value(), 7u);
  EXPECT_EQ(reducer.last_reads()[2].value(), 9u);
}

TEST_F(ReducerTest, ASecondReportIsAnErrorOfOurs) {
  Reducer reducer = make(false);
  reducer.grad_ready(0, event(1));
  EXPECT_THROW(reducer.grad_ready(0, event(2)), Error);
  reducer.begin();
  EXPECT_NO_THROW(reducer.grad_ready(0, event(3)));
}

}  // namespace
}  // namespace sidestep::testing
