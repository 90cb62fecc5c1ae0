// What a table of values cannot say: error messages, refusals, and behaviour at the edges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/ops/library_versions.h"
#include "core/ops/ops.h"
#include "core/ops/threads.h"

namespace sidestep {
namespace {

using ::testing::HasSubstr;

TensorType f32(Shape shape) { return {shape, DType::f32}; }
TensorType i32(Shape shape) { return {shape, DType::i32}; }

struct BadInput {
  const OpDef* op;
  std::vector<TensorType> in;
  Attrs attrs;
  std::string message;
};

Attrs conv(std::int64_t stride, std::int64_t padding) {
  return {{"stride", stride}, {"padding", padding}};
}
Attrs pool(std::int64_t kernel, std::int64_t stride) {
  return {{"kernel", kernel}, {"stride", stride}};
}

TEST(OpErrors, NameOpExpectedAndFound) {
  const BadInput bad[] = {
      {&ops::conv2d,
       {f32({3, 4}), f32({6, 1, 5, 5})},
       conv(1, 0),
       "[conv2d] expected x of rank 4 (NHWC), got float32 [3, 4]"},
      {&ops::conv2d,
       {f32({1, 8, 8, 3}), f32({6, 1, 5, 5})},
       conv(1, 0),
       "[conv2d] expected a weight of rank 4 (OIHW) with 3 input channels, got float32 [6, 1, 5, "
       "5]"},
      {&ops::conv2d,
       {f32({1, 3, 8, 1}), f32({6, 1, 5, 5})},
       conv(1, 0),
       "[conv2d] expected x at least as large as the kernel [6, 1, 5, 5], got float32 [1, 3, 8, "
       "1]"},
      {&ops::conv2d,
       {f32({1, 8, 8, 1}), f32({6, 1, 5, 5}), f32({5})},
       conv(1, 0),
       "[conv2d] expected a bias float32 [6], got float32 [5]"},
      {&ops::conv2d,
       {f32({1, 8, 8, 1}), f32({6, 1, 5, 5})},
       conv(0, 0),
       "[conv2d] expected stride >= 1, got 0"},
      {&ops::conv2d, {f32({1, 8, 8, 1})}, conv(1, 0), "[conv2d] expected 2 to 3 inputs, got 1"},
      {&ops::linear,
       {f32({3, 4}), f32({5, 6})},
       {},
       "[linear] expected a weight float32 [out, 4], got float32 [5, 6]"},
      {&ops::linear,
       {f32({3, 4}), f32({5, 4}), f32({4})},
       {},
       "[linear] expected a bias float32 [5], got float32 [4]"},
      {&ops::max_pool2d,
       {f32({1, 1, 8, 2})},
       pool(2, 2),
       "[max_pool2d] expected height and width of at least kernel, got float32 [1, 1, 8, 2]"},
      {&ops::max_pool2d,
       {f32({1, 99, 99, 2})},
       pool(17, 2),
       "[max_pool2d] expected kernel between 1 and 16, got 17"},
      {&ops::relu, {i32({3})}, {}, "[relu] expected x of float32, got int32 [3]"},
      {&ops::flatten,
       {f32({3})},
       {},
       "[flatten] expected x of float32 and rank 4 (NHWC) or 2, got float32 [3]"},
      {&ops::add,
       {f32({3}), f32({4})},
       {},
       "[add] expected a second input like the first (float32 [3]), got float32 [4]"},
      {&ops::softmax_xent,
       {f32({3, 4}), f32({3})},
       {},
       "[softmax_xent] expected labels int32 [3], got float32 [3]"},
      {&ops::softmax_xent,
       {f32({3, 4}), i32({4})},
       {},
       "[softmax_xent] expected labels int32 [3], got int32 [4]"},
  };
  for (const BadInput& test : bad) {
    try {
      test.op->infer(test.attrs, test.in);
      ADD_FAILURE() << "accepted, instead of: " << test.message;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::settings);
      EXPECT_EQ(error.what(), test.message);
    }
  }
}

TEST(OpErrors, LibraryOpsRefuseCudaWhenPrepared) {
  GraphBuilder builder;
  const ValueId x = builder.input("x", f32({2, 8, 8, 1}));
  const ValueId w = builder.input("w", f32({6, 1, 5, 5}));
  builder.apply1(ops::conv2d, {x, w}, conv(1, 0));
  const ValueId a = builder.input("a", f32({2, 8}));
  const ValueId b = builder.input("b", f32({3, 8}));
  builder.apply1(ops::linear, {a, b});
  const Graph& graph = builder.graph();
  for (NodeId id = 0; id < 2; ++id) {
    try {
      graph.node(id).op->prepare(NodeRef{graph, id}, Device{DeviceKind::cuda, 0});
      ADD_FAILURE() << graph.node(id).name << " accepted a CUDA device";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::device);
      EXPECT_THAT(error.what(), HasSubstr(graph.node(id).name + " has no CUDA form in this build"));
    }
  }
}

/// Runs one op on the CPU over tensors of the test.
void run_op(const OpDef& op, std::vector<View> in, std::vector<View> out, const Attrs& attrs = {}) {
  GraphBuilder builder;
  std::vector<ValueId> ids;
  for (const View& v : in) ids.push_back(builder.input("v", {v.shape, v.dtype}));
  builder.apply(op, ids, attrs);
  const auto state = op.prepare ? op.prepare(NodeRef{builder.graph(), 0}, Device{}) : nullptr;
  Stream stream = Stream::create(Device{}, "op", StreamMode::direct);
  OpContext context{stream, in, out, attrs, state.get()};
  op.run(context);
  stream.synchronize();
}

template <class T>
View view(std::vector<T>& values, Shape shape) {
  return {reinterpret_cast<std::byte*>(values.data()), shape, dtype_of<T>, Device{}};
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(OpEdges, ReluAndPoolingLetNanPass) {
  std::vector<float> x = {kNan, -1, 2, 3}, y(4), pooled(1);
  std::vector<std::uint8_t> index(1);
  run_op(ops::relu, {view(x, {4})}, {view(y, {4})});
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], 0);
  std::vector<float> window = {1, kNan, 5, 2};
  run_op(ops::max_pool2d, {view(window, {1, 2, 2, 1})},
         {view(pooled, {1, 1, 1, 1}), view(index, {1, 1, 1, 1})}, pool(2, 2));
  EXPECT_TRUE(std::isnan(pooled[0]));
}

struct XentResult {
  double loss;
  std::int64_t correct;
  std::vector<float> probabilities;
};

XentResult xent(std::vector<float> logits, std::vector<std::int32_t> labels) {
  const auto rows = static_cast<std::int64_t>(labels.size());
  const auto classes = static_cast<std::int64_t>(logits.size()) / rows;
  std::vector<double> loss(1);
  std::vector<std::int64_t> weight(1), correct(1);
  std::vector<float> p(logits.size());
  run_op(ops::softmax_xent, {view(logits, {rows, classes}), view(labels, {rows})},
         {view(loss, {1}), view(weight, {1}), view(correct, {1}), view(p, {rows, classes})});
  EXPECT_EQ(weight[0], rows);
  return {loss[0], correct[0], p};
}

TEST(OpEdges, SoftmaxOfLargeLogitsDoesNotOverflow) {
  const XentResult r = xent({1000, -1000, 0, -1000, 1000, 0}, {0, 0});
  EXPECT_DOUBLE_EQ(r.loss, 2000);
  EXPECT_EQ(r.correct, 1);
  EXPECT_FLOAT_EQ(r.probabilities[0], 1);
  EXPECT_FLOAT_EQ(r.probabilities[3], 0);
}

TEST(OpEdges, LabelOutsideTheClassesGivesNan) {
  EXPECT_TRUE(std::isnan(xent({1, 2, 3, 4}, {0, 2}).loss));
  EXPECT_TRUE(std::isnan(xent({1, 2, 3, 4}, {-1, 0}).loss));
}

TEST(OpEdges, NanLogitsAreNeverCorrect) {
  const XentResult r = xent({kNan, kNan}, {0});
  EXPECT_TRUE(std::isnan(r.loss));
  EXPECT_EQ(r.correct, 0);
}

TEST(ComputeThreads, BelongToTheCallingThread) {
  const int mine = compute_threads();
  Stream stream = Stream::create(Device{}, "compute");
  int seen = 0;
  stream.host([&seen, mine] {
    set_compute_threads(mine + 2);
    seen = compute_threads();
  });
  stream.synchronize();
  EXPECT_EQ(seen, mine + 2);
  EXPECT_EQ(compute_threads(), mine);
  EXPECT_THROW(set_compute_threads(0), Error);
}

TEST(LibraryVersions, AreThereAndOfOneMajor) {
  const LibraryVersion onednn = onednn_version();
  EXPECT_EQ(onednn.compiled.substr(0, onednn.compiled.find('.')),
            onednn.loaded.substr(0, onednn.loaded.find('.')));
  EXPECT_FALSE(blas_version().compiled.empty());
  EXPECT_FALSE(blas_version().loaded.empty());
}

}  // namespace
}  // namespace sidestep
