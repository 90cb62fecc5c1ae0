#include "app/agreement.h"

#include <gmock/gmock.h>

#include <array>
#include <atomic>

#include "app/failure.h"
#include "app/options.h"
#include "tests/app/run_ranks.h"

namespace sidestep {
namespace {

using testing::HasSubstr;
using testing::Not;

Settings parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "train");
  return parse_command_line(arguments).settings;
}

TEST(Agreement, EqualFactsPass) {
  std::atomic<int> passed{0};
  run_ranks(3, [&](Communicator& comm) {
    agree(comm,
          settings_facts(parse({"--lr", "0.1", "--threads", std::to_string(comm.rank() + 1)})));
    ++passed;
  });
  EXPECT_EQ(passed, 3) << "threads may differ between ranks";
}

TEST(Agreement, EveryRankGetsTheSameListOfDifferences) {
  std::array<std::string, 4> messages;
  run_ranks(4, [&](Communicator& comm) {
    const int rank = comm.rank();
    Facts facts = settings_facts(parse({"--hidden", rank == 2 ? "128" : "64"}));
    facts.emplace_back("data", rank < 2 ? "60000 samples" : "50000 samples");
    try {
      agree(comm, facts);
    } catch (const AgreedError& error) {
      EXPECT_EQ(error.code(), Exit::settings);
      messages[static_cast<std::size_t>(rank)] = error.what();
    }
  });
  EXPECT_THAT(messages[0], HasSubstr("--hidden: \"128\" on rank 2, \"64\" on ranks 0-1,3"));
  EXPECT_THAT(messages[0],
              HasSubstr("data: \"50000 samples\" on ranks 2-3, \"60000 samples\" on ranks 0-1"));
  EXPECT_THAT(messages[0], Not(HasSubstr("--lr")));
  for (const std::string& message : messages) EXPECT_EQ(message, messages[0]);
}

TEST(Agreement, AFactThatIsAbsentIsADifference) {
  EXPECT_EQ(differences({{{"a", "1"}}, {{"a", "1"}, {"b", "2"}}}),
            "\n  b: \"2\" on rank 1, absent on rank 0");
  EXPECT_EQ(differences({{{"a", "1"}}, {{"a", "1"}}}), "");
}

TEST(Agreement, TheDrawnSeedIsShared) {
  std::array<std::int64_t, 3> seeds{};
  run_ranks(3, [&](Communicator& comm) {
    Settings settings = parse({});
    agree_on_seed(comm, settings);
    seeds[static_cast<std::size_t>(comm.rank())] = settings.seed;
    EXPECT_EQ(origin_of(settings, "seed"), Origin::drawn);
  });
  EXPECT_GE(seeds[0], 0);
  EXPECT_EQ(seeds[1], seeds[0]);
  EXPECT_EQ(seeds[2], seeds[0]);
}

TEST(Agreement, AGivenSeedStays) {
  run_ranks(2, [](Communicator& comm) {
    Settings settings = parse({"--seed", "42"});
    agree_on_seed(comm, settings);
    EXPECT_EQ(settings.seed, 42);
  });
}

}  // namespace
}  // namespace sidestep
