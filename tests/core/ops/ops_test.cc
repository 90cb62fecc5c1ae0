// The table of op cases: one line each, on every device there is.
#include "core/ops/ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/base/error.h"
#include "tests/core/ops/reference.h"
#include "tests/harness/op_harness.h"

namespace sidestep::testing {
namespace {

Attrs conv(std::int64_t stride, std::int64_t padding) {
  return {{"stride", stride}, {"padding", padding}};
}
Attrs pool(std::int64_t kernel, std::int64_t stride) {
  return {{"kernel", kernel}, {"stride", stride}};
}

constexpr bool kCpuOnly = false;

const std::vector<OpCase>& cases() {
  namespace ref = reference;
  // clang-format off
  static const std::vector<OpCase> kCases = {
      {"add", &ops::add, {normal({3, 5}), normal({3, 5})}, {}, ref::add},
      {"add_large", &ops::add, {normal({70000}), normal({70000})}, {}, ref::add},
      {"bias_grad", &ops::bias_grad, {normal({7, 3})}, {}, ref::bias_grad},
      {"bias_grad_16", &ops::bias_grad, {normal({9, 16})}, {}, ref::bias_grad},
      {"bias_grad_images", &ops::bias_grad, {normal({2, 5, 4, 37})}, {}, ref::bias_grad},
      {"constant", &ops::constant, {}, {{"value", 1.5}, {"n", std::int64_t{3}}}, ref::constant},
      {"conv2d_lenet1", &ops::conv2d,
       {normal({2, 9, 9, 1}), normal({6, 1, 5, 5}), normal({6})}, conv(1, 2),
       ref::conv2d, kCpuOnly},
      {"conv2d_lenet2", &ops::conv2d,
       {normal({2, 7, 7, 6}), normal({16, 6, 5, 5}), normal({16})}, conv(1, 0),
       ref::conv2d, kCpuOnly},
      {"conv2d_no_bias", &ops::conv2d,
       {normal({1, 5, 6, 3}), normal({4, 3, 3, 3})}, conv(1, 1), ref::conv2d, kCpuOnly},
      {"conv2d_stride", &ops::conv2d,
       {normal({2, 8, 7, 16}), normal({8, 16, 3, 3}), normal({8})}, conv(2, 1),
       ref::conv2d, kCpuOnly},
      {"conv2d_1x1", &ops::conv2d,
       {normal({3, 4, 4, 8}), normal({16, 8, 1, 1})}, conv(1, 0), ref::conv2d, kCpuOnly},
      {"conv2d_oblong", &ops::conv2d,
       {normal({1, 6, 9, 2}), normal({3, 2, 2, 4}), normal({3})}, conv(1, 1),
       ref::conv2d, kCpuOnly},
      {"flatten", &ops::flatten, {normal({2, 3, 4, 5})}, {}, ref::flatten},
      {"flatten_vectors", &ops::flatten, {normal({3, 8})}, {}, ref::flatten},
      {"linear", &ops::linear,
       {normal({4, 7}), normal({5, 7}), normal({5})}, {}, ref::linear, kCpuOnly},
      {"linear_no_bias", &ops::linear,
       {normal({3, 33}), normal({17, 33})}, {}, ref::linear, kCpuOnly},
      {"linear_one_row", &ops::linear,
       {normal({1, 120}), normal({84, 120}), normal({84})}, {}, ref::linear, kCpuOnly},
      {"max_pool2d", &ops::max_pool2d, {normal({2, 6, 8, 3})}, pool(2, 2), ref::max_pool2d},
      {"max_pool2d_ties", &ops::max_pool2d, {coarse({2, 6, 6, 3})}, pool(2, 2), ref::max_pool2d},
      {"max_pool2d_overlap", &ops::max_pool2d,
       {normal({2, 7, 9, 16})}, pool(3, 2), ref::max_pool2d},
      {"max_pool2d_rest", &ops::max_pool2d, {normal({1, 7, 5, 1})}, pool(2, 3), ref::max_pool2d},
      {"relu", &ops::relu, {normal({4, 9})}, {}, ref::relu},
      {"relu_zeros", &ops::relu, {coarse({5, 8})}, {}, ref::relu},
      {"relu_images", &ops::relu, {normal({2, 3, 3, 5})}, {}, ref::relu},
      {"softmax_xent", &ops::softmax_xent, {normal({6, 10}), labels(6, 10)}, {}, ref::softmax_xent},
      {"softmax_xent_two", &ops::softmax_xent,
       {normal({1, 2}), labels(1, 2)}, {}, ref::softmax_xent},
      {"softmax_xent_ties", &ops::softmax_xent,
       {coarse({40, 3}), labels(40, 3)}, {}, ref::softmax_xent},
      {"softmax_xent_wide", &ops::softmax_xent,
       {normal({5, 301}), labels(5, 301)}, {}, ref::softmax_xent},
  };
  // clang-format on
  return kCases;
}

class Ops : public ::testing::TestWithParam<OpCase> {};

TEST_P(Ops, AgreesWithReferenceOnCpu) {
  EXPECT_THAT(check_op(GetParam(), Device{}).problems, ::testing::IsEmpty());
}

TEST_P(Ops, AgreesWithReferenceOnCuda) {
  const CudaProbe probe = probe_cuda();
  if (probe.devices == 0) GTEST_SKIP() << "no GPU: " << probe.explanation;
  EXPECT_THAT(check_op(GetParam(), Device{DeviceKind::cuda, 0}).problems, ::testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Table, Ops, ::testing::ValuesIn(cases()),
                         [](const auto& param) { return param.param.name; });

TEST(OpTable, CoversEveryRegisteredOp) {
  std::set<std::string> covered, registered;
  for (const OpCase& test : cases()) {
    const auto run = check_op(test, Device{}).ops_run;
    covered.insert(run.begin(), run.end());
  }
  for (const OpDef* op : ops::all()) registered.emplace(op->name);
  EXPECT_EQ(covered, registered);
  EXPECT_EQ(registered.size(), ops::all().size()) << "two ops share a name";
}

}  // namespace
}  // namespace sidestep::testing
