#include "core/graph/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "core/base/error.h"
#include "core/ops/ops.h"

namespace sidestep {
namespace {

ModelOutputs build(GraphBuilder& b, std::int64_t batch) {
  const ValueId x = b.input("x", {Shape{batch, 4}});
  const ValueId y = b.input("y", {Shape{batch}, DType::i32});
  const ValueId w1 =
      b.param({.name = "w1", .shape = Shape{8, 4}, .init = {Init::Kind::uniform, 0.5}});
  const ValueId w2 =
      b.param({.name = "w2", .shape = Shape{3, 8}, .init = {Init::Kind::uniform, 0.5}});
  const ValueId h = b.apply1(ops::relu, {b.apply1(ops::linear, {x, w1}, {}, "fc1")}, {}, "act");
  const ValueId logits = b.apply1(ops::linear, {h, w2}, {}, "fc2");
  const ValueId in[] = {logits, y};
  const auto out = b.apply(ops::softmax_xent, in, {}, "loss");
  return {.loss = out[0], .weight = out[1], .correct = out[2], .logits = logits};
}

struct Recorder final : GradSink {
  void grad_ready(ParamId p, const Event& event) override {
    ready.push_back(p);
    events.push_back(event);
  }
  void last_read(ParamId p, const Event&) override { ++reads[p]; }
  std::vector<ParamId> ready;
  std::vector<Event> events;
  std::map<ParamId, int> reads;
};

void fill_inputs(const Executor& executor, std::int64_t batch, std::int64_t first_sample) {
  auto* x = executor.input(batch, "x").as<float>();
  auto* y = executor.input(batch, "y").as<std::int32_t>();
  for (std::int64_t i = 0; i < batch; ++i) {
    for (int j = 0; j < 4; ++j)
      x[i * 4 + j] = std::sin(static_cast<float>((first_sample + i) * 4 + j));
    y[i] = static_cast<std::int32_t>((first_sample + i) % 3);
  }
}

std::vector<float> grads_of(const Executor& executor) {
  const View g = executor.params().grads();
  return {g.as<float>(), g.as<float>() + g.numel()};
}

TEST(Executor, EverySizeRunsOverOneSlabAndSumsAddUp) {
  Executor executor(build, {.device = {}, .batches = {6, 2, 4}});
  executor.params().initialize(3);
  Stream stream = Stream::create({}, "compute");
  std::map<std::int64_t, std::vector<float>> grads;
  std::map<std::int64_t, double> losses;
  for (const auto& [batch, first] : {std::pair{6, 0}, std::pair{2, 0}, std::pair{4, 2}}) {
    fill_inputs(executor, batch, first);
    Recorder sink;
    executor.forward(stream, batch, nullptr, 0);
    executor.backward(stream, batch, sink, 0);
    stream.synchronize();
    EXPECT_EQ(sink.ready, executor.backward_info().ready_order);
    EXPECT_EQ(sink.reads, (std::map<ParamId, int>{{0, 1}, {1, 1}}));
    EXPECT_EQ(executor.weight(batch).as<std::int64_t>()[0], batch);
    losses[batch] = executor.loss(batch).as<double>()[0];
    grads[batch] = grads_of(executor);
  }
  EXPECT_NEAR(losses[6], losses[2] + losses[4], 1e-6);
  double largest = 0;
  for (std::size_t i = 0; i < grads[6].size(); ++i) {
    EXPECT_NEAR(grads[6][i], grads[2][i] + grads[4][i], 1e-5);
    largest = std::max(largest, static_cast<double>(std::abs(grads[6][i])));
  }
  EXPECT_GT(largest, 1e-3);
}

TEST(Executor, DirectAndThreadedStreamsAgreeBitForBit) {
  Executor executor(build, {.device = {}, .batches = {6}});
  executor.params().initialize(3);
  fill_inputs(executor, 6, 0);
  std::vector<std::vector<float>> grads;
  for (const StreamMode mode : {StreamMode::threaded, StreamMode::direct}) {
    Stream stream = Stream::create({}, "compute", mode);
    Recorder sink;
    executor.forward(stream, 6, nullptr, 0);
    executor.backward(stream, 6, sink, 0);
    stream.synchronize();
    grads.push_back(grads_of(executor));
  }
  EXPECT_EQ(0, std::memcmp(grads[0].data(), grads[1].data(), grads[0].size() * sizeof(float)));
}

// A gate that opens w2 late: fc1 must run before it, fc2 must not.
TEST(Executor, ForwardWaitsOnlyForTheParametersItReads) {
  struct Gate final : ParamGate {
    Event ready(ParamId p) const override { return p == 1 ? late : Event(); }
    Event late;
  };
  Executor executor(build, {.device = {}, .batches = {2}});
  executor.params().initialize(3);
  fill_inputs(executor, 2, 0);
  Stream compute = Stream::create({}, "compute");
  const auto timeline = std::make_shared<Timeline>();
  Gate gate;
  gate.late = Event(timeline, 1);
  const auto reached = std::make_shared<Timeline>();
  std::vector<std::string> order;
  executor.set_node_hook([&](const Node& node) {
    order.push_back(node.name);
    if (node.name == "act") reached->advance(1);
  });
  executor.forward(compute, 2, &gate, 0);
  const Event done = compute.record();
  Event(reached, 1).wait();
  EXPECT_FALSE(done.done());
  timeline->advance(1);
  done.wait();
  EXPECT_EQ(order, (std::vector<std::string>{"fc1", "act", "fc2", "loss"}));
}

TEST(Executor, EvaluationSharesParametersAndHasNoBackward) {
  Executor training(build, {.device = {}, .batches = {4}});
  training.params().initialize(3);
  Executor evaluation(build, {.device = {}, .training = false, .batches = {4}},
                      training.shared_params());
  fill_inputs(training, 4, 0);
  fill_inputs(evaluation, 4, 0);
  Stream stream = Stream::create({}, "compute");
  training.forward(stream, 4, nullptr, 0);
  evaluation.forward(stream, 4, nullptr, 0);
  stream.synchronize();
  EXPECT_EQ(training.loss(4).as<double>()[0], evaluation.loss(4).as<double>()[0]);
  Recorder sink;
  EXPECT_THROW(evaluation.backward(stream, 4, sink, 0), Error);
}

TEST(Executor, TracesNodesByNameInsideTheWindow) {
  Tracer tracer(100);
  tracer.set_window(5, 5);
  Executor executor(build, {.device = {}, .batches = {2}, .tracer = &tracer});
  executor.params().initialize(3);
  fill_inputs(executor, 2, 0);
  Stream stream = Stream::create({}, "compute");
  for (std::int64_t step = 4; step <= 6; ++step) {
    Recorder sink;
    executor.forward(stream, 2, nullptr, step);
    executor.backward(stream, 2, sink, step);
  }
  stream.synchronize();
  const auto spans = tracer.spans();
  ASSERT_GT(spans.size(), 6u);
  EXPECT_STREQ(spans[0].name, "fc1");
  std::int64_t last_end = 0;
  for (const TraceSpan& span : spans) {
    EXPECT_EQ(span.step, 5);
    EXPECT_LE(span.begin_ns, span.end_ns);
    EXPECT_LE(last_end, span.begin_ns);
    last_end = span.end_ns;
  }
}

TEST(Executor, RefusesABatchWithoutAPlan) {
  Executor executor(build, {.device = {}, .batches = {2}});
  Stream stream = Stream::create({}, "compute");
  EXPECT_THROW(executor.forward(stream, 3, nullptr, 0), Error);
}

}  // namespace
}  // namespace sidestep
