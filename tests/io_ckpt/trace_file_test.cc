#include "io/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/io_ckpt/io_ckpt_util.h"

namespace sidestep::testing {
namespace {

using nlohmann::json;

RankTrace rank_trace(int rank, std::int64_t offset_ns) {
  RankTrace trace;
  trace.rank = rank;
  trace.host = rank == 0 ? "node a" : "node\"b";
  trace.offset_ns = offset_ns;
  trace.spans = {{"conv1 forward", 2000, 5500, 10, TraceRow::compute},
                 {"bucket 0", 5000, 9000, 10, TraceRow::communication},
                 {"update", 9000, 9500, 11, TraceRow::update},
                 {"read", 1000, 1500, 10, TraceRow::input},
                 {"save", 9600, 9700, 11, TraceRow::saving}};
  return trace;
}

std::vector<json> events(const json& trace, const std::string& kind) {
  std::vector<json> found;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == kind) found.push_back(event);
  return found;
}

TEST(TraceFile, SerializeAndParseAreInverse) {
  RankTrace trace = rank_trace(2, -12345);
  trace.dropped = 7;
  const RankTrace parsed = parse_rank_trace(serialize(trace));
  EXPECT_EQ(parsed.rank, 2);
  EXPECT_EQ(parsed.host, trace.host);
  EXPECT_EQ(parsed.offset_ns, -12345);
  EXPECT_EQ(parsed.dropped, 7u);
  ASSERT_EQ(parsed.spans.size(), trace.spans.size());
  for (std::size_t i = 0; i < trace.spans.size(); ++i) {
    EXPECT_EQ(parsed.names[i], trace.spans[i].name);
    EXPECT_EQ(parsed.spans[i].begin_ns, trace.spans[i].begin_ns);
    EXPECT_EQ(parsed.spans[i].end_ns, trace.spans[i].end_ns);
    EXPECT_EQ(parsed.spans[i].step, trace.spans[i].step);
    EXPECT_EQ(parsed.spans[i].row, trace.spans[i].row);
  }
  EXPECT_EQ(serialize(parsed), serialize(trace));
}

TEST(TraceFile, OtherTextIsRefused) {
  const std::string good = serialize(rank_trace(0, 0));
  for (const std::string& text : {std::string(), std::string("x"), good.substr(0, good.size() - 1),
                                  good + "9 1 2 3 x\n", good + "0 1 2\n"})
    error_of(Exit::internal, [&] { parse_rank_trace(text); });
}

TEST(TraceFile, RanksHaveNamedRowsAndOneClock) {
  const ScratchFolder folder;
  const auto path = folder / "t.json";
  const std::string line = write_trace(
      path, {rank_trace(0, 0), parse_rank_trace(serialize(rank_trace(1, 500)))}, 10, 11);
  expect_names(line, {"t.json", "steps 10 to 11", "2 ranks", "10 spans"});
  const json trace = json::parse(slurp(path));
  std::vector<std::string> processes, rows;
  for (const json& event : events(trace, "M")) {
    if (event["name"] == "process_name") processes.push_back(event["args"]["name"]);
    if (event["name"] == "thread_name" && event["pid"] == 1) rows.push_back(event["args"]["name"]);
  }
  EXPECT_THAT(processes, ::testing::ElementsAre("rank 0 (node a)", "rank 1 (node\"b)"));
  EXPECT_THAT(rows,
              ::testing::ElementsAre("compute", "update", "communication", "input", "saving"));
  const auto spans = events(trace, "X");
  ASSERT_EQ(spans.size(), 10u);
  // The earliest span of all is time zero; rank 1's clock is 0.5 us behind.
  EXPECT_EQ(spans[0]["name"], "read");
  EXPECT_EQ(spans[0]["ts"], 0.0);
  EXPECT_EQ(spans[5]["ts"], 0.5);
  EXPECT_EQ(spans[1]["name"], "conv1 forward");
  EXPECT_EQ(spans[1]["ts"], 1.0);
  EXPECT_EQ(spans[1]["dur"], 3.5);
  EXPECT_EQ(spans[1]["tid"], 0);
  EXPECT_EQ(spans[1]["args"]["step"], 10);
  const json& meta = trace["metadata"];
  EXPECT_EQ(meta["first_step"], 10);
  EXPECT_EQ(meta["last_step"], 11);
  EXPECT_EQ(meta["last_complete_step"], 11);
  EXPECT_EQ(meta["ranks"][1]["offset_ns"], 500);
  EXPECT_EQ(meta["ranks"][1]["host"], "node\"b");
}

TEST(TraceFile, LimitKeepsTheEarliestAndSaysWhichStepsAreHeld) {
  const ScratchFolder folder;
  const auto path = folder / "t.json";
  const std::string line = write_trace(path, {rank_trace(0, 0), rank_trace(1, 0)}, 10, 11, 6);
  expect_names(line, {"steps 10 to 10", "6 spans", "4 left out", "asked for steps 10 to 11"});
  const json trace = json::parse(slurp(path));
  EXPECT_EQ(events(trace, "X").size(), 6u);
  EXPECT_EQ(trace["metadata"]["last_complete_step"], 10);
  EXPECT_EQ(trace["metadata"]["ranks"][0]["dropped"], 2);
}

TEST(TraceFile, SpansDroppedByARankCount) {
  const ScratchFolder folder;
  RankTrace full = rank_trace(0, 0);
  full.dropped = 3;
  expect_names(write_trace(folder / "t.json", {full}, 10, 20), {"steps 10 to 10", "3 left out"});
}

TEST(TraceFile, NoSpansIsStillATrace) {
  const ScratchFolder folder;
  write_trace(folder / "t.json", {RankTrace{}}, 1, 2);
  EXPECT_TRUE(json::parse(slurp(folder / "t.json"))["traceEvents"].is_array());
  write_trace(folder / "t.json", {}, 1, 2);
  EXPECT_TRUE(json::parse(slurp(folder / "t.json"))["traceEvents"].empty());
}

TEST(TraceFile, ManySpansAreWrittenInPieces) {
  const ScratchFolder folder;
  RankTrace trace;
  for (int i = 0; i < 50000; ++i)
    trace.spans.push_back({"a node with some name", i, i + 1, i, TraceRow::compute});
  write_trace(folder / "t.json", {trace}, 0, 49999);
  const auto spans = events(json::parse(slurp(folder / "t.json")), "X");
  ASSERT_EQ(spans.size(), 50000u);
  EXPECT_EQ(spans.back()["ts"], 49.999);
}

}  // namespace
}  // namespace sidestep::testing
