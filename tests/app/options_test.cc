#include "app/options.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "tests/app/expect_error.h"

namespace sidestep {
namespace {

using testing::HasSubstr;
using testing::Not;

Settings parse(std::vector<std::string> arguments) {
  return parse_command_line(arguments).settings;
}

std::string refused(std::vector<std::string> arguments) {
  const std::string message = message_of(Exit::settings, [&] { parse(arguments); });
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  return message;
}

class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text)
      : path_(
            std::filesystem::path(testing::TempDir()) /
            (std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) + ".ini")) {
    std::ofstream(path_) << text;
  }
  ~ConfigFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

TEST(Options, EachIsDeclaredOnceWithADefaultItAccepts) {
  std::set<std::string> names;
  std::set<const void*> fields;
  for (const OptionSpec& spec : option_table()) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    EXPECT_NE(spec.commands, 0u) << spec.name;
    EXPECT_FALSE(spec.help.empty()) << spec.name;
    const Settings settings = default_settings(Command::train);
    EXPECT_EQ(option_text(settings, spec), spec.standard) << spec.name << ": not in normal form";
  }
  // No two options set the same member.
  Settings probe;
  for (const OptionSpec& spec : option_table()) {
    std::visit(
        [&](auto member) { EXPECT_TRUE(fields.insert(&(probe.*member)).second) << spec.name; },
        spec.field);
  }
}

TEST(Options, DefaultsTrainSomethingReal) {
  const Settings s = parse({"train"});
  EXPECT_EQ(s.command, Command::train);
  EXPECT_EQ(s.model, "lenet");
  EXPECT_EQ(s.data, "fashion-mnist");
  EXPECT_EQ(s.batch, 128);
  EXPECT_EQ(s.lr, 0.05);
  EXPECT_EQ(s.overlap, "full");
  EXPECT_EQ(s.eval_every, (Interval{1, 0}));
  EXPECT_TRUE(s.shuffle);
  EXPECT_EQ(s.seed, -1);
}

TEST(Options, ReadsEveryKind) {
  const Settings s = parse({"train", "--hidden", "64,32", "--lr=1e-3", "--epochs", "3",
                            "--nesterov", "--trace", "10:20", "--max-time", "01:30:00",
                            "--eval-every=200steps", "--data", "idx:/a b", "--shuffle=off"});
  EXPECT_EQ(s.hidden, (std::vector<std::int64_t>{64, 32}));
  EXPECT_EQ(s.lr, 1e-3);
  EXPECT_EQ(s.epochs, 3);
  EXPECT_TRUE(s.nesterov);
  EXPECT_EQ(s.trace, (StepWindow{10, 20}));
  EXPECT_EQ(s.max_time.seconds, 5400);
  EXPECT_EQ(s.eval_every, (Interval{0, 200}));
  EXPECT_EQ(s.data, "idx:/a b");
  EXPECT_FALSE(s.shuffle);
  EXPECT_EQ(origin_of(s, "lr"), Origin::command_line);
  EXPECT_EQ(origin_of(s, "batch"), Origin::standard);
}

TEST(Options, AFlagDoesNotTakeTheNextWord) {
  EXPECT_EQ(parse({"inspect", "--verify", "a.h5"}).file, "a.h5");
  EXPECT_EQ(parse({"inspect", "a.h5", "--verify"}).file, "a.h5");
  EXPECT_FALSE(parse({"inspect", "a.h5", "--verify=off"}).verify);
  EXPECT_FALSE(parse({"inspect", "--verify", "off", "a.h5"}).verify);
  EXPECT_TRUE(parse({"inspect", "--verify", "a.h5"}).verify);
}

TEST(Options, APrefixIsNotTheName) {
  EXPECT_THAT(refused({"train", "--epoch", "3"}), HasSubstr("did you mean --epochs?"));
  EXPECT_THAT(refused({"train", "--check", "c/"}), HasSubstr("did you mean --checkpoint-every?"));
  EXPECT_THAT(refused({"train", "--lear", "c/"}), HasSubstr("--lear: unknown option of train"));
}

TEST(Options, UnknownNamesGetTheNearest) {
  EXPECT_THAT(refused({"train", "--learning-rte", "1"}), Not(HasSubstr("did you mean --config")));
  EXPECT_THAT(refused({"train", "--momentun=0.9"}), HasSubstr("did you mean --momentum?"));
  EXPECT_THAT(refused({"train", "--qqqqqqqq"}), Not(HasSubstr("did you mean")));
  EXPECT_THAT(refused({"trian"}), HasSubstr("did you mean train?"));
  EXPECT_THAT(refused({"train", "--model", "lenett"}), HasSubstr("did you mean lenet?"));
}

TEST(Options, OptionsOfAnotherCommandAreNamed) {
  EXPECT_THAT(refused({"eval", "--epochs", "3", "--checkpoint", "a"}),
              HasSubstr("--epochs is an option of train, not of eval"));
}

TEST(Options, WrongFormsAreRefusedInOneLine) {
  EXPECT_THAT(refused({"train", "-e", "3"}), HasSubstr("-e"));
  EXPECT_THAT(refused({"train", "run1"}), HasSubstr("\"run1\""));
  EXPECT_THAT(refused({"train", "--lr"}), HasSubstr("--lr: expected a number"));
  EXPECT_THAT(refused({"train", "--out", "--replace"}), HasSubstr("--out: expected"));
  EXPECT_THAT(refused({"train", "--lr", "1", "--lr", "2"}),
              HasSubstr("expected once, found \"1\" and \"2\""));
  EXPECT_THAT(refused({"--lr", "1"}), HasSubstr("expected a command first"));
  EXPECT_THAT(refused({"inspect"}), HasSubstr("expected FILE"));
  EXPECT_THAT(refused({"inspect", "a", "b"}), HasSubstr("expected once"));
  EXPECT_THAT(refused({"eval"}), HasSubstr("expected --checkpoint"));
}

TEST(Options, ValuesAreChecked) {
  const std::vector<std::pair<std::string, std::string>> wrong{{"lr", "0"},
                                                               {"lr", "-1"},
                                                               {"lr", "nan"},
                                                               {"lr", "1e400"},
                                                               {"lr", "0.1x"},
                                                               {"lr", ""},
                                                               {"batch", "0"},
                                                               {"batch", "1.5"},
                                                               {"batch", "99999999999999999999"},
                                                               {"epochs", "-1"},
                                                               {"threads", "-1"},
                                                               {"momentum", "1.1"},
                                                               {"beta1", "1"},
                                                               {"hidden", "64,,32"},
                                                               {"hidden", "64,0"},
                                                               {"hidden", ""},
                                                               {"overlap", "on"},
                                                               {"model", ""},
                                                               {"out", ""},
                                                               {"max-time", "90"},
                                                               {"max-time", "-1s"},
                                                               {"max-time", "1:30"},
                                                               {"max-time", "00:99:00"},
                                                               {"max-time", ""},
                                                               {"trace", "20:10"},
                                                               {"trace", "5"},
                                                               {"trace", "-1:3"},
                                                               {"eval-every", "2x"},
                                                               {"eval-every", "-1"},
                                                               {"prefetch", "0"},
                                                               {"shuffle", "maybe"},
                                                               {"out", "two\nlines"},
                                                               {"seed", "-2"},
                                                               {"bucket-mb", "0"},
                                                               {"keep-best", "f1"}};
  for (const auto& [name, value] : wrong) {
    const std::string message = message_of(Exit::settings, [&] {
      parse({"train", "--" + name + "=" + value});
    });
    EXPECT_THAT(message, HasSubstr("--" + name + ": expected ")) << value;
    const std::string found = value.empty() ? "found no value" : "found \"" + value + "\"";
    EXPECT_THAT(message, HasSubstr(found)) << value;
  }
}

TEST(Options, RulesBetweenOptions) {
  EXPECT_THAT(refused({"train", "--resume", "latest", "--replace"}), HasSubstr("found both"));
  EXPECT_THAT(refused({"train", "--resume", "latest", "--init-from", "a"}),
              HasSubstr("found both"));
  EXPECT_THAT(refused({"train", "--epochs", "0"}), HasSubstr("--steps"));
  EXPECT_THAT(refused({"train", "--nesterov", "--optimizer", "adamw"}), HasSubstr("--nesterov"));
  EXPECT_THAT(refused({"train", "--keep-best", "loss", "--eval-every", "0"}),
              HasSubstr("--eval-every 0"));
  EXPECT_NO_THROW(parse({"train", "--epochs", "0", "--steps", "5"}));
}

TEST(Options, Durations) {
  const auto seconds = [](const std::string& text) {
    return parse({"train", "--max-time", text}).max_time.seconds;
  };
  EXPECT_EQ(seconds("90s"), 90);
  EXPECT_EQ(seconds("30m"), 1800);
  EXPECT_EQ(seconds("1.5h"), 5400);
  EXPECT_EQ(seconds("100:00:01"), 360001);
}

TEST(Options, NearestNames) {
  const std::vector<std::string> names{"lr", "lr-scale", "epochs", "steps"};
  EXPECT_EQ(nearest_name("epoch", names), "epochs");
  EXPECT_EQ(nearest_name("spets", names), "steps");
  EXPECT_EQ(nearest_name("lr_scale", names), "lr-scale");
  EXPECT_EQ(nearest_name("zzzz", names), "");
}

TEST(Options, ConfigFileIsReadAndTheCommandLineWins) {
  const ConfigFile file(
      "# comment\n; another\n\nepochs = 5\nlr=0.2  # trailing\nout = \"run #1\"\nverify = on\n");
  const Settings s = parse({"train", "--epochs", "2", "--config", file.path()});
  EXPECT_EQ(s.epochs, 2);
  EXPECT_EQ(s.lr, 0.2);
  EXPECT_EQ(s.out, "run #1");
  EXPECT_FALSE(s.verify) << "an option of another command is left aside";
  EXPECT_EQ(origin_of(s, "epochs"), Origin::command_line);
  EXPECT_EQ(origin_of(s, "lr"), Origin::file);
}

TEST(Options, ConfigFileErrorsNameFileLineAndKey) {
  const auto error = [](const std::string& text) {
    const ConfigFile file(text);
    const std::string message = refused({"train", "--config", file.path()});
    EXPECT_THAT(message, HasSubstr(file.path() + ":2: "));
    return message;
  };
  EXPECT_THAT(error("epochs=5\nmomentun=0.1\n"),
              HasSubstr("momentun: unknown option of train; did you mean momentum?"));
  EXPECT_THAT(error("\nlearning_rte=0.1\n"), HasSubstr("learning_rte: unknown option"));
  EXPECT_THAT(error("epochs=5\nepochs=6\n"),
              HasSubstr("epochs: expected once, found on line 1 too"));
  EXPECT_THAT(error("\nlr=fast\n"), HasSubstr("lr: expected a number"));
  EXPECT_THAT(error("\nepochs 5\n"), HasSubstr("key = value"));
  EXPECT_THAT(error("\nbench-steps=0\n"), HasSubstr("bench-steps: expected an integer"));
  EXPECT_THAT(error("\nconfig=other.ini\n"), HasSubstr("another config file"));
  EXPECT_THAT(refused({"train", "--config", "/no/such.ini"}), HasSubstr("/no/such.ini"));
}

TEST(Options, SavedConfigGivesTheSameSettings) {
  const Settings s = parse({"train", "--lr", "0.1", "--hidden", "7,8", "--out", " odd #name; ",
                            "--max-time", "90m", "--trace", "1:4", "--eval-every", "50steps",
                            "--epsilon", "1e-7", "--momentum", "0.1234567890123456", "--replace"});
  const std::string text = config_text(s);
  EXPECT_THAT(text, HasSubstr("# command line\n"));
  EXPECT_THAT(text, HasSubstr("# default\n"));
  EXPECT_LT(text.find("lr = 0.1"), text.find("# default"));
  EXPECT_GT(text.find("batch = 128"), text.find("# default"));
  const ConfigFile file(text);
  const Settings again = parse({"train", "--config", file.path()});
  EXPECT_FALSE(again.replace) << "a saved config must not replace a run when read back";
  for (const OptionSpec& spec : option_table()) {
    if (spec.name == "replace" || spec.name == "config") continue;
    EXPECT_EQ(option_text(again, spec), option_text(s, spec)) << spec.name;
  }
}

TEST(Options, HelpAndTableHoldEveryOption) {
  const std::string markdown = options_markdown();
  for (const OptionSpec& spec : option_table()) {
    if (spec.positional) continue;
    EXPECT_THAT(markdown, HasSubstr("| `--" + spec.name + "` |"));
    for (const Command command :
         {Command::train, Command::eval, Command::inspect, Command::bench}) {
      const bool listed = help_text(command).find("  --" + spec.name + " ") != std::string::npos;
      EXPECT_EQ(listed, (spec.commands & bit(command)) != 0)
          << spec.name << " " << to_string(command);
    }
  }
  EXPECT_EQ(parse_command_line({"train", "--help"}).information, help_text(Command::train));
  EXPECT_EQ(parse_command_line({"train", "--lr", "3", "--help"}).information,
            help_text(Command::train));
  EXPECT_EQ(parse_command_line({"--help"}).information, help_text());
  EXPECT_THAT(refused({}), HasSubstr("expected a command"));
  EXPECT_TRUE(parse_command_line({"--version"}).version);
}

}  // namespace
}  // namespace sidestep
