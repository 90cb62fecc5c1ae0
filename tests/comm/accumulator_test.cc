#include "comm/accumulator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "tests/comm/stores.h"
#include "tests/harness/allocation_count.h"

namespace sidestep::testing {
namespace {

/// What was reported, and each gradient's first element when its event was done.
struct Recorder final : GradSink {
  explicit Recorder(ParamStore& param_store) : store(param_store) {}
  void grad_ready(ParamId p, const Event& event) override {
    event.wait();
    ready.emplace_back(p, store.grad(p).as<float>()[0]);
  }
  void last_read(ParamId p, const Event&) override { reads.push_back(p); }
  ParamStore& store;
  std::vector<std::pair<ParamId, float>> ready;
  std::vector<ParamId> reads;
};

/// Element i of micro-batch k's gradient: magnitudes differ so much that the order of a sum shows.
float gradient(int k, std::int64_t i) {
  const std::uint64_t key = rng_key(3, "gradient", static_cast<std::uint64_t>(k));
  const float sign = k % 2 == 0 ? 1.0f : -1.0f;
  return sign * std::ldexp(1 + random_uniform(key, static_cast<std::uint64_t>(i)), 4 - 2 * k);
}

class AccumulatorTest : public ::testing::Test {
 protected:
  void backward(int k, GradSink* sink) {
    for (const ParamId p : store_.order()) {
      compute_.host([this, k, p] {
        float* const g = store_.grad(p).as<float>();
        for (std::int64_t i = 0; i < store_.grad(p).numel(); ++i)
          g[i] = gradient(k, store_.offset(p) + i);
      });
      if (sink == nullptr) continue;
      sink->last_read(p, compute_.record());
      sink->grad_ready(p, compute_.record());
    }
  }

  std::vector<float> grads() {
    compute_.synchronize();
    const float* const g = store_.grads().as<float>();
    return {g, g + store_.grads().numel()};
  }

  /// The sum in the order of the micro-batches; padding stays zero.
  std::vector<float> expected(int micro_batches) {
    std::vector<float> sums(static_cast<std::size_t>(store_.flat_numel()));
    for (const ParamId p : store_.order()) {
      for (std::int64_t i = store_.offset(p); i < store_.offset(p) + store_.grad(p).numel(); ++i) {
        float sum = gradient(0, i);
        for (int k = 1; k < micro_batches; ++k) sum = sum + gradient(k, i);
        sums[static_cast<std::size_t>(i)] = sum;
      }
    }
    return sums;
  }

  ParamStore store_ = store_of({40, 7, 100});
  Stream compute_ = Stream::create(Device{}, "compute");
  GradAccumulator accumulator_{store_, compute_};
  Recorder recorder_{store_};
};

TEST_F(AccumulatorTest, AForeseenLastMicroBatchAndAFlushGiveTheSameBits) {
  for (int micro_batches = 1; micro_batches <= 4; ++micro_batches) {
    accumulator_.begin();
    for (int k = 0; k + 1 < micro_batches; ++k) {
      backward(k, nullptr);
      accumulator_.add(compute_);
    }
    backward(micro_batches - 1, &accumulator_.last_sink(recorder_));
    EXPECT_EQ(grads(), expected(micro_batches)) << "foreseen, " << micro_batches;

    accumulator_.begin();
    for (int k = 0; k < micro_batches; ++k) {
      backward(k, nullptr);
      accumulator_.add(compute_);
    }
    accumulator_.flush(compute_);
    EXPECT_EQ(grads(), expected(micro_batches)) << "flushed, " << micro_batches;
  }
}

TEST_F(AccumulatorTest, TheOrderOfTheSumShowsInTheseGradients) {
  const std::vector<float> forwards = expected(4);
  int different = 0;
  for (std::int64_t i = 0; i < 40; ++i) {  // the first parameter's elements
    float backwards = gradient(3, i);
    for (int k = 2; k >= 0; --k) backwards = backwards + gradient(k, i);
    different += backwards != forwards[static_cast<std::size_t>(i)] ? 1 : 0;
  }
  EXPECT_GT(different, 0);
}

TEST_F(AccumulatorTest, PassesOnWhatIsFinal) {
  accumulator_.begin();
  backward(0, nullptr);
  accumulator_.add(compute_);
  backward(1, &accumulator_.last_sink(recorder_));
  EXPECT_EQ(recorder_.reads, (std::vector<ParamId>{0, 1, 2}));
  ASSERT_EQ(recorder_.ready.size(), 3u);
  for (const auto& [p, first] : recorder_.ready) {
    const std::int64_t i = store_.offset(p);
    EXPECT_EQ(first, gradient(0, i) + gradient(1, i)) << "parameter " << p;
  }
}

TEST_F(AccumulatorTest, AStepBeginsEmpty) {
  backward(1, nullptr);
  accumulator_.add(compute_);
  accumulator_.begin();
  backward(0, nullptr);
  accumulator_.flush(compute_);  // nothing was added since
  EXPECT_EQ(grads(), expected(1));
  EXPECT_EQ(&accumulator_.last_sink(recorder_), &recorder_);
}

TEST_F(AccumulatorTest, AllocatesNothingInAStep) {
  NoSink none;
  const auto step = [&] {
    accumulator_.begin();
    backward(0, nullptr);
    accumulator_.add(compute_);
    backward(1, &accumulator_.last_sink(none));
    compute_.synchronize();
  };
  step();
  const std::int64_t before = allocation_count();
  step();
  EXPECT_EQ(allocation_count(), before);
}

}  // namespace
}  // namespace sidestep::testing
