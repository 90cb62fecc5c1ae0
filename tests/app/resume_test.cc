#include <gmock/gmock.h>

#include "app/options.h"
#include "tests/app/expect_error.h"

namespace sidestep {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

Settings parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "train");
  return parse_command_line(arguments).settings;
}

TEST(Resume, OptionsNotGivenAreTheCheckpoints) {
  const std::string there =
      config_text(parse({"--batch", "32", "--lr", "0.3", "--seed", "7", "--threads", "3"}));
  Settings now = parse({"--resume", "latest"});
  EXPECT_THAT(apply_resume(now, there), IsEmpty());
  EXPECT_EQ(now.batch, 32);
  EXPECT_EQ(now.lr, 0.3);
  EXPECT_EQ(now.seed, 7);
  EXPECT_EQ(now.threads, 0) << "belongs to the invocation";
  EXPECT_EQ(origin_of(now, "batch"), Origin::checkpoint);
}

TEST(Resume, TheSameCommandAgainIsNoDifference) {
  const std::vector<std::string> command{"--batch", "32", "--lr", "3e-1", "--hidden", "8"};
  Settings now = parse(command);
  EXPECT_THAT(apply_resume(now, config_text(parse(command))), IsEmpty());
}

TEST(Resume, ChangesThatAreAllowedAreListed) {
  Settings now = parse({"--lr", "0.01", "--epochs", "9"});
  EXPECT_THAT(apply_resume(now, config_text(parse({"--lr", "0.3"}))),
              UnorderedElementsAre("--epochs: checkpoint \"5\", now \"9\"",
                                   "--lr: checkpoint \"0.3\", now \"0.01\""));
  EXPECT_EQ(now.lr, 0.01);
}

TEST(Resume, DifferencesThatAreNotAreListedTogether) {
  Settings now = parse({"--model", "mlp", "--batch", "64", "--lr", "0.01"});
  const std::string message = message_of(Exit::checkpoint, [&] {
    apply_resume(now, config_text(parse({"--model", "lenet"})));
  });
  EXPECT_THAT(message, HasSubstr("--model: checkpoint \"lenet\", now \"mlp\" (command line)"));
  EXPECT_THAT(message, HasSubstr("--batch: checkpoint \"128\", now \"64\""));
  EXPECT_THAT(message, Not(HasSubstr("--lr:")));
}

TEST(Resume, ADrawnSeedGivesWayToTheCheckpoints) {
  Settings now = parse({});
  set_option(now, *find_option("seed"), "5", Origin::drawn, "seed");
  apply_resume(now, "seed = 9\n");
  EXPECT_EQ(now.seed, 9);
}

TEST(Resume, KeysOfOtherVersionsAreIgnored) {
  Settings now = parse({});
  EXPECT_THAT(apply_resume(now, "some-later-option = 1\nbatch = 16\n"), IsEmpty());
  EXPECT_EQ(now.batch, 16);
}

TEST(Resume, EvalTakesTheModelFromTheCheckpoint) {
  Settings now = parse_command_line({"eval", "--checkpoint", "a.h5"}).settings;
  apply_resume(now,
               config_text(parse({"--model", "mlp", "--hidden", "5", "--data", "synthetic:10"})));
  EXPECT_EQ(now.model, "mlp");
  EXPECT_EQ(now.hidden, std::vector<std::int64_t>{5});
  EXPECT_EQ(now.data, "synthetic:10");
  EXPECT_EQ(now.command, Command::eval);
}

}  // namespace
}  // namespace sidestep
