#include "io/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "tests/harness/allocation_count.h"
#include "tests/io_ckpt/io_ckpt_util.h"

namespace sidestep::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;

StepMetrics step_line(std::int64_t step) {
  StepMetrics m;
  m.step = step;
  m.loss = 0.5;
  m.index_digest = 0xab;
  return m;
}

std::vector<json> lines_of(const std::filesystem::path& path) {
  std::vector<json> lines;
  std::istringstream in(slurp(path));
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

std::vector<std::int64_t> steps_of(const std::filesystem::path& path) {
  std::vector<std::int64_t> steps;
  for (const json& line : lines_of(path))
    steps.push_back(line[line.contains("step") ? "step" : "last_step"].get<std::int64_t>());
  return steps;
}

TEST(Metrics, EveryFieldIsThereInEveryLine) {
  const ScratchFolder folder;
  {
    MetricsFile file(folder / "m.jsonl", std::nullopt);
    StepMetrics m = step_line(3);
    m.loss = std::numeric_limits<double>::quiet_NaN();
    m.lr = 0.1;
    file.write(m);
    m.loss = 1e-300;
    m.grad_norm = std::numeric_limits<double>::infinity();
    m.eval_loss = 0.25;
    m.eval_correct = 9876543210;
    file.write(m);
  }
  const auto lines = lines_of(folder / "m.jsonl");
  ASSERT_EQ(lines.size(), 2u);
  std::vector<std::string> first, second;
  for (const auto& [name, value] : lines[0].items()) first.push_back(name);
  for (const auto& [name, value] : lines[1].items()) second.push_back(name);
  EXPECT_EQ(first, second);
  EXPECT_EQ(first.size(), 25u);
  EXPECT_EQ(lines[0]["step"], 3);
  EXPECT_EQ(lines[0]["lr"], 0.1);
  EXPECT_EQ(lines[0]["index_digest"], "00000000000000ab");
  EXPECT_TRUE(lines[0]["loss"].is_null());
  EXPECT_TRUE(lines[0]["grad_norm"].is_null());
  EXPECT_TRUE(lines[0]["eval_correct"].is_null());
  EXPECT_EQ(lines[1]["loss"], 1e-300);
  EXPECT_TRUE(lines[1]["grad_norm"].is_null());
  EXPECT_EQ(lines[1]["eval_loss"], 0.25);
  EXPECT_EQ(lines[1]["eval_correct"], 9876543210);
}

TEST(Metrics, RankLines) {
  const ScratchFolder folder;
  {
    MetricsFile file(folder / "r.jsonl", std::nullopt);
    file.write(RankMetrics{1, 20, 3, "no\"de\\\n1", 1.5, 0.25, 0.125, 0, 640});
  }
  const auto line = lines_of(folder / "r.jsonl").at(0);
  EXPECT_EQ(line["host"], "no\"de\\\n1");
  EXPECT_EQ(line["rank"], 3);
  EXPECT_EQ(line["first_step"], 1);
  EXPECT_EQ(line["compute_seconds"], 1.5);
  EXPECT_EQ(line["samples"], 640);
}

TEST(Metrics, ResumeDropsLaterStepsAndATornLine) {
  const ScratchFolder folder;
  const auto path = folder / "m.jsonl";
  {
    MetricsFile file(path, std::nullopt);
    for (std::int64_t step = 1; step <= 9; ++step) file.write(step_line(step));
  }
  spill(path, slurp(path) + "{\"step\": 3, \"lo");
  {
    MetricsFile file(path, 5);
    file.write(step_line(6));
  }
  EXPECT_THAT(steps_of(path), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(folder.names(), ElementsAre("m.jsonl"));
}

TEST(Metrics, ResumeDropsIntervalsThatReachFurther) {
  const ScratchFolder folder;
  const auto path = folder / "r.jsonl";
  {
    MetricsFile file(path, std::nullopt);
    for (std::int64_t first = 1; first <= 21; first += 10) {
      RankMetrics m;
      m.first_step = first;
      m.last_step = first + 9;
      file.write(m);
    }
  }
  { MetricsFile file(path, 25); }
  EXPECT_THAT(steps_of(path), ElementsAre(10, 20));
}

TEST(Metrics, ResumeWithoutAFileStartsOne) {
  const ScratchFolder folder;
  { MetricsFile file(folder / "m.jsonl", 5); }
  EXPECT_EQ(slurp(folder / "m.jsonl"), "");
}

TEST(Metrics, FlushMakesLinesVisible) {
  const ScratchFolder folder;
  MetricsFile file(folder / "m.jsonl", std::nullopt);
  for (std::int64_t step = 1; step <= 3; ++step) file.write(step_line(step));
  file.flush();
  EXPECT_THAT(steps_of(folder / "m.jsonl"), ElementsAre(1, 2, 3));
}

TEST(Metrics, ManyLinesStayWholeAndInOrder) {
  const ScratchFolder folder;
  constexpr std::int64_t kLines = 2000;
  {
    MetricsFile file(folder / "m.jsonl", std::nullopt);
    for (std::int64_t step = 1; step <= kLines; ++step) file.write(step_line(step));
  }
  const auto steps = steps_of(folder / "m.jsonl");
  ASSERT_EQ(steps.size(), static_cast<std::size_t>(kLines));
  for (std::int64_t i = 0; i < kLines; ++i) ASSERT_EQ(steps[static_cast<std::size_t>(i)], i + 1);
}

TEST(Metrics, WritingAllocatesNothing) {
  const ScratchFolder folder;
  MetricsFile file(folder / "m.jsonl", std::nullopt);
  StepMetrics m = step_line(1);
  m.grad_norm = 1.0 / 3;
  m.eval_loss = 1e-7;
  const RankMetrics r{1, 20, 3, "host", 1.5, 0.25, 0.125, 0, 640};
  const std::int64_t before = allocation_count();
  for (m.step = 1; m.step <= 1000; ++m.step) {
    file.write(m);
    file.write(r);
  }
  EXPECT_EQ(allocation_count(), before);
}

TEST(Metrics, PathThatCannotBeWritten) {
  const ScratchFolder folder;
  expect_names(
      error_of(Exit::checkpoint, [&] { MetricsFile file(folder / "no/m.jsonl", std::nullopt); }),
      {"no/m.jsonl", "No such file"});
}

}  // namespace
}  // namespace sidestep::testing
