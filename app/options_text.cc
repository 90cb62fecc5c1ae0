// What is derived from the option table: lookups, defaults, help, the saved config, the resume
// check.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

#include "app/options.h"
#include "core/base/error.h"

namespace sidestep {
namespace {

struct CommandText {
  Command command;
  const char* name;
  const char* help;
};

constexpr CommandText kTexts[] = {
    {Command::train, "train", "train a model"},
    {Command::eval, "eval", "measure a checkpoint on the test data"},
    {Command::inspect, "inspect", "say what a checkpoint holds"},
    {Command::bench, "bench", "measure samples/s, exchange and input"},
    {Command::options, "options", "list all options"},
};

std::string trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin));
}

/// A value as written in the file: in quotes when it would be read differently without.
std::string quoted(const std::string& value) {
  const bool plain = value == trimmed(value) && value.find_first_of("#;\"") == std::string::npos;
  return plain ? value : '"' + value + '"';
}

std::string unquoted(std::string_view text) {
  if (const auto last = text.rfind('"'); text.starts_with('"') && last > 0) {
    return std::string(text.substr(1, last - 1));
  }
  for (const char* comment : {" #", "\t#"}) text = text.substr(0, text.find(comment));
  return text.starts_with('#') ? "" : trimmed(text);
}

std::string standard_text(const OptionSpec& spec) {
  return spec.required && spec.standard.empty() ? "required" : spec.standard;
}

}  // namespace

const OptionSpec* find_option(std::string_view name) {
  for (const OptionSpec& spec : option_table()) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

std::string_view to_string(Command command) {
  for (const CommandText& text : kTexts) {
    if (text.command == command) return text.name;
  }
  return "?";
}

unsigned bit(Command command) { return 1u << static_cast<unsigned>(command); }

std::string_view to_string(Origin origin) {
  switch (origin) {
    case Origin::standard:
      return "default";
    case Origin::file:
      return "config file";
    case Origin::command_line:
      return "command line";
    case Origin::checkpoint:
      return "checkpoint";
    case Origin::drawn:
      return "drawn at start";
  }
  return "?";
}

Origin origin_of(const Settings& settings, const std::string& name) {
  const auto at = settings.origins.find(name);
  return at == settings.origins.end() ? Origin::standard : at->second;
}

Settings default_settings(Command command) {
  Settings settings;
  settings.command = command;
  for (const OptionSpec& spec : option_table()) {
    if (spec.required && spec.standard.empty()) continue;
    set_option(settings, spec, spec.standard, Origin::standard, spec.name);
  }
  return settings;
}

void check_settings(const Settings& s) {
  const auto both = [](const char* a, const char* b, const char* why) {
    fail(Exit::settings,
         fmt::format("--{} and --{}: expected at most one of them, found both; {}", a, b, why));
  };
  if (!s.resume.empty() && s.replace) both("resume", "replace", "continue a run or replace it");
  if (!s.resume.empty() && !s.init_from.empty()) {
    both("resume", "init-from", "a resumed run has its weights");
  }
  if (s.command != Command::train) return;
  if (s.epochs == 0 && s.steps == 0) {
    fail(Exit::settings,
         "--epochs: expected at least 1 unless --steps is given, found 0 and --steps 0");
  }
  if (s.nesterov && (s.optimizer != "sgd" || s.momentum == 0)) {
    fail(Exit::settings,
         fmt::format(
             "--nesterov: expected --optimizer sgd with --momentum above 0, found {} with {}",
             s.optimizer, s.momentum));
  }
  if (s.schedule == "cosine" && s.min_lr > s.lr) {
    fail(Exit::settings,
         fmt::format("--min-lr: expected at most --lr ({}), found {}", s.lr, s.min_lr));
  }
  if (s.keep_best != "none" && s.eval_every == Interval{}) {
    fail(Exit::settings,
         fmt::format("--keep-best: expected evaluations to choose by, found --eval-every 0"));
  }
}

std::string help_text() {
  std::string text =
      "Trains neural networks on many ranks: mpirun -n N sidestep train ...\n\nCommands:\n";
  for (const CommandText& t : kTexts) text += fmt::format("  {:<10}{}\n", t.name, t.help);
  return text +
         "\nsidestep COMMAND --help lists a command's options; sidestep --version the libraries.\n";
}

std::string help_text(Command command) {
  std::string_view about;
  for (const CommandText& t : kTexts) {
    if (t.command == command) about = t.help;
  }
  const bool file = command == Command::inspect;
  std::string text =
      fmt::format("sidestep {}{} [options]: {}\n", to_string(command), file ? " FILE" : "", about);
  std::string group;
  for (const OptionSpec& spec : option_table()) {
    if (!(spec.commands & bit(command)) || spec.positional) continue;
    if (spec.group != group) text += fmt::format("\n{}:\n", group = spec.group);
    const std::string choices =
        spec.choices.empty() ? "" : fmt::format(" ({})", fmt::join(spec.choices, ", "));
    const std::string standard = standard_text(spec);
    text += fmt::format("  --{:<18}{}{}{}\n", spec.name, spec.help, choices,
                        standard.empty() ? "" : fmt::format(" [{}]", standard));
  }
  return text;
}

std::string options_markdown() {
  constexpr const char* kRules[] = {"must match", "may change", "this run only"};
  std::string text =
      "| option | commands | default | at resume | meaning |\n|---|---|---|---|---|\n";
  for (const OptionSpec& spec : option_table()) {
    std::vector<std::string> commands;
    for (const CommandText& t : kTexts) {
      if (spec.commands & bit(t.command)) commands.emplace_back(t.name);
    }
    std::string help = spec.help;
    if (!spec.choices.empty()) help += fmt::format(" ({})", fmt::join(spec.choices, ", "));
    const std::string standard =
        spec.standard.empty() ? standard_text(spec) : '`' + spec.standard + '`';
    text += fmt::format("| `{}{}` | {} | {} | {} | {} |\n", spec.positional ? "" : "--",
                        spec.positional ? "FILE" : spec.name, fmt::join(commands, ", "), standard,
                        spec.commands & kTrain ? kRules[static_cast<int>(spec.resume)] : "", help);
  }
  return text;
}

std::string config_text(const Settings& settings) {
  std::string text = "# Settings of a run; `sidestep train --config FILE` reads them.\n";
  for (const Origin origin :
       {Origin::command_line, Origin::file, Origin::checkpoint, Origin::drawn, Origin::standard}) {
    bool first = true;
    for (const OptionSpec& spec : option_table()) {
      // How to begin is a matter of one invocation: read back, it would resume or replace again.
      const bool once = spec.name == "resume" || spec.name == "replace" || spec.name == "config";
      if (once || !(spec.commands & bit(settings.command)) ||
          origin_of(settings, spec.name) != origin) {
        continue;
      }
      if (first) text += fmt::format("\n# {}\n", to_string(origin));
      first = false;
      text += fmt::format("{} = {}\n", spec.name, quoted(option_text(settings, spec)));
    }
  }
  return text;
}

std::vector<ConfigLine> parse_config(const std::string& text, const std::string& file) {
  std::vector<ConfigLine> lines;
  std::istringstream in(text);
  std::string raw;
  for (int number = 1; std::getline(in, raw); ++number) {
    const std::string line = trimmed(raw);
    if (line.empty() || line.starts_with('#') || line.starts_with(';')) continue;
    const auto equals = line.find('=');
    if (equals == std::string::npos || equals == 0) {
      fail(Exit::settings,
           fmt::format("{}:{}: expected \"key = value\" or a comment (#), found \"{}\"", file,
                       number, line));
    }
    lines.push_back(
        {number, trimmed(line.substr(0, equals)), unquoted(trimmed(line.substr(equals + 1)))});
  }
  return lines;
}

std::vector<std::string> apply_resume(Settings& settings, const std::string& checkpoint_config) {
  std::vector<std::string> changes, conflicts;
  for (const ConfigLine& line : parse_config(checkpoint_config, "config of the checkpoint")) {
    const OptionSpec* spec = find_option(line.key);
    if (!spec || spec->resume == ResumeRule::free || !(spec->commands & kTrain)) continue;
    const Origin origin = origin_of(settings, spec->name);
    Settings there = settings;
    set_option(there, *spec, line.value, Origin::checkpoint,
               "config of the checkpoint: " + line.key);
    const std::string was = option_text(there, *spec);
    const std::string now = option_text(settings, *spec);
    if (was == now) continue;
    if (origin == Origin::standard || origin == Origin::drawn) {
      settings = std::move(there);
    } else if (spec->resume == ResumeRule::must_match) {
      conflicts.push_back(fmt::format("--{}: checkpoint \"{}\", now \"{}\" ({})", spec->name, was,
                                      now, to_string(origin)));
    } else {
      changes.push_back(fmt::format("--{}: checkpoint \"{}\", now \"{}\"", spec->name, was, now));
    }
  }
  if (!conflicts.empty()) {
    fail(Exit::checkpoint,
         fmt::format("resume: expected the checkpoint's settings, found {} that differ; leave them "
                     "out to take the checkpoint's, or start a new run:\n  {}",
                     conflicts.size(), fmt::join(conflicts, "\n  ")));
  }
  check_settings(settings);
  return changes;
}

std::vector<std::pair<std::string, std::string>> settings_facts(const Settings& settings) {
  std::vector<std::pair<std::string, std::string>> facts{
      {"command", std::string(to_string(settings.command))}};
  for (const OptionSpec& spec : option_table()) {
    const bool config_path = spec.name == "config";  // what it says is compared, not where it lies
    if (!(spec.commands & bit(settings.command)) || spec.per_rank || config_path) continue;
    facts.emplace_back("--" + spec.name, option_text(settings, spec));
  }
  return facts;
}

}  // namespace sidestep
