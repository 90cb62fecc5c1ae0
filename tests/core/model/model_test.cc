#include "core/model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "core/base/error.h"

namespace sidestep {
namespace {

struct Built {
  GraphBuilder builder;
  ModelOutputs outputs;
};

Built build(const ModelConfig& config, std::int64_t batch) {
  Built built;
  built.outputs = make_model(config)(built.builder, batch);
  return built;
}

std::vector<std::string> parameters(const GraphBuilder& builder) {
  std::vector<std::string> out;
  for (const ParamSpec& spec : builder.param_specs()) {
    out.push_back(spec.name + " " + to_string(spec.shape));
  }
  return out;
}

std::int64_t parameter_count(const GraphBuilder& builder) {
  std::int64_t count = 0;
  for (const ParamSpec& spec : builder.param_specs()) count += spec.shape.numel();
  return count;
}

TEST(Model, MlpHasPyTorchsParameters) {
  const Built mlp = build({.name = "mlp", .hidden = {64, 32}}, 5);
  EXPECT_THAT(parameters(mlp.builder),
              testing::ElementsAre("fc1.weight [64, 784]", "fc1.bias [64]", "fc2.weight [32, 64]",
                                   "fc2.bias [32]", "fc3.weight [10, 32]", "fc3.bias [10]"));
}

TEST(Model, MlpWithoutHiddenLayersIsLogisticRegression) {
  const Built mlp =
      build({.name = "mlp", .height = 2, .width = 3, .channels = 4, .classes = 7, .hidden = {}}, 1);
  EXPECT_THAT(parameters(mlp.builder), testing::ElementsAre("fc1.weight [7, 24]", "fc1.bias [7]"));
}

TEST(Model, LenetHasPyTorchsParameters) {
  const Built lenet = build({.name = "lenet"}, 5);
  EXPECT_THAT(parameters(lenet.builder),
              testing::ElementsAre(
                  "conv1.weight [6, 1, 5, 5]", "conv1.bias [6]", "conv2.weight [16, 6, 5, 5]",
                  "conv2.bias [16]", "fc1.weight [120, 400]", "fc1.bias [120]",
                  "fc2.weight [84, 120]", "fc2.bias [84]", "fc3.weight [10, 84]", "fc3.bias [10]"));
  EXPECT_EQ(parameter_count(lenet.builder), 61706);
}

TEST(Model, LenetTakesOtherSampleSizes) {
  const Built cifar = build({.name = "lenet", .height = 32, .width = 32, .channels = 3}, 2);
  EXPECT_THAT(parameters(cifar.builder), testing::Contains("conv1.weight [6, 3, 5, 5]"));
  EXPECT_THAT(parameters(cifar.builder), testing::Contains("fc1.weight [120, 576]"));
  const Built least = build({.name = "lenet", .height = 12, .width = 13}, 2);
  EXPECT_THAT(parameters(least.builder), testing::Contains("fc1.weight [120, 16]"));
}

class EveryModel : public testing::TestWithParam<std::string> {};

TEST_P(EveryModel, TakesImagesAndLabelsAndGivesTheFourOutputs) {
  const Built model = build({.name = GetParam(), .classes = 4}, 3);
  const Graph& graph = model.builder.graph();
  EXPECT_EQ(graph.value(graph.input("x")).type, (TensorType{{3, 28, 28, 1}, DType::f32}));
  EXPECT_EQ(graph.value(graph.input("y")).type, (TensorType{{3}, DType::i32}));
  EXPECT_EQ(model.builder.type(model.outputs.logits), (TensorType{{3, 4}, DType::f32}));
  EXPECT_EQ(model.builder.type(model.outputs.loss), (TensorType{{1}, DType::f64}));
  EXPECT_EQ(model.builder.type(model.outputs.weight), (TensorType{{1}, DType::i64}));
  EXPECT_EQ(model.builder.type(model.outputs.correct), (TensorType{{1}, DType::i64}));
}

TEST_P(EveryModel, StartsUniformInOneOverRootFanInAndDecaysWeightsOnly) {
  const Built model = build({.name = GetParam()}, 1);
  double fan_in = 0;
  for (const ParamSpec& spec : model.builder.param_specs()) {
    const bool bias = spec.name.ends_with(".bias");
    if (!bias) fan_in = static_cast<double>(spec.shape.row_numel());  // its bias comes next
    EXPECT_EQ(spec.init.kind, Init::Kind::uniform);
    EXPECT_DOUBLE_EQ(spec.init.scale, 1 / std::sqrt(fan_in)) << spec.name;
    EXPECT_EQ(spec.decay, !bias) << spec.name;
  }
}

TEST_P(EveryModel, ParametersDoNotDependOnTheBatch) {
  EXPECT_EQ(parameters(build({.name = GetParam()}, 1).builder),
            parameters(build({.name = GetParam()}, 8).builder));
}

TEST_P(EveryModel, RunsEveryBatchSizeOnOneSetOfParameters) {
  const Executor::Options options{
      .device = {}, .training = true, .batches = {4, 1}, .tracer = nullptr};
  Executor executor(make_model({.name = GetParam(), .hidden = {8}}), options);
  executor.params().initialize(3);
  Stream stream = Stream::create({}, "compute", StreamMode::direct);
  for (const std::int64_t batch : options.batches) {
    const View x = executor.input(batch, "x");
    std::fill_n(x.as<float>(), x.numel(), 0.5f);
    std::fill_n(executor.input(batch, "y").as<std::int32_t>(), batch, 3);
    executor.forward(stream, batch, nullptr, 0);
    stream.synchronize();
    EXPECT_EQ(executor.weight(batch).as<std::int64_t>()[0], batch);
    const double loss = executor.loss(batch).as<double>()[0] / static_cast<double>(batch);
    EXPECT_NEAR(loss, std::log(10.0), 0.7);
  }
  EXPECT_NEAR(executor.loss(4).as<double>()[0], 4 * executor.loss(1).as<double>()[0], 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Zoo, EveryModel, testing::ValuesIn(model_names()),
                         [](const auto& test) { return test.param; });

void expect_settings_error(const ModelConfig& config, const std::string& text) {
  try {
    make_model(config);
    FAIL() << "expected an error about " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::settings);
    EXPECT_THAT(error.what(), testing::HasSubstr(text));
  }
}

TEST(Model, SaysWhatIsWrong) {
  expect_settings_error({.name = "lenet5"}, "expected one of mlp, lenet");
  expect_settings_error({.name = "lenet", .height = 11}, "at least 12x12, found 11x28");
  expect_settings_error({.name = "mlp", .hidden = {5, 0}}, "found 0");
  expect_settings_error({.name = "mlp", .channels = 0}, "found 28x28x0");
  expect_settings_error({.name = "mlp", .classes = 1}, "at least 2 classes, found 1");
}

}  // namespace
}  // namespace sidestep
