// A random program over several streams: each task writes one cell from others, and every conflict
// between streams is ordered by an event. Any schedule must give what one thread gives.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "core/device/stream.h"

namespace sidestep {
namespace {

constexpr std::size_t kStreams = 4;
constexpr std::size_t kCells = 12;
constexpr int kTasks = 1500;

using Cells = std::array<std::uint64_t, kCells>;

struct Step {
  std::size_t stream;
  std::size_t target;
  std::array<std::size_t, 2> sources;
};

std::vector<Step> random_program(std::uint64_t seed) {
  const std::uint64_t key = rng_key(seed, "stream program");
  std::uint64_t draws = 0;
  const auto below = [&](std::uint64_t bound) {
    return static_cast<std::size_t>(random_below(key, draws++, bound));
  };
  std::vector<Step> program(kTasks);
  for (Step& step : program)
    step = {below(kStreams), below(kCells), {below(kCells), below(kCells)}};
  return program;
}

void apply(Cells& cells, const Step& step, int number) {
  std::uint64_t value = static_cast<std::uint64_t>(number);
  for (const std::size_t source : step.sources) value = value * 31 + cells[source];
  cells[step.target] = value;
}

/// Who last wrote a cell and who has read it since; a new user waits for those it conflicts with.
struct Users {
  Event write;
  std::vector<Event> reads;
};

Cells run_on_streams(const std::vector<Step>& program, StreamMode mode) {
  Cells cells{};
  std::array<Users, kCells> users;
  std::vector<Stream> streams;
  for (std::size_t i = 0; i < kStreams; ++i)
    streams.push_back(Stream::create({}, "dag" + std::to_string(i), mode));
  int number = 0;
  for (const Step& step : program) {
    Stream& stream = streams[step.stream];
    for (const std::size_t source : step.sources) stream.wait(users[source].write);
    stream.wait(users[step.target].write);
    for (const Event& read : users[step.target].reads) stream.wait(read);
    stream.host([&cells, step, number] { apply(cells, step, number); });
    const Event done = stream.record();
    for (const std::size_t source : step.sources) users[source].reads.push_back(done);
    users[step.target] = {done, {}};
    ++number;
  }
  for (Stream& stream : streams) stream.synchronize();
  return cells;
}

Cells run_in_order(const std::vector<Step>& program) {
  Cells cells{};
  int number = 0;
  for (const Step& step : program) apply(cells, step, number++);
  return cells;
}

class StreamDag : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(StreamDag, ThreadedAndDirectEqualOneThread) {
  const std::vector<Step> program = random_program(GetParam());
  const Cells wanted = run_in_order(program);
  EXPECT_EQ(run_on_streams(program, StreamMode::direct), wanted);
  EXPECT_EQ(run_on_streams(program, StreamMode::threaded), wanted);
}

INSTANTIATE_TEST_SUITE_P(Seeds, StreamDag, ::testing::Range<std::uint64_t>(1, 9));

}  // namespace
}  // namespace sidestep
