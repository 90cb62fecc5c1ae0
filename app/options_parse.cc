// The command line, by Boost.Program_options, and the config file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>

#include "app/options.h"
#include "core/base/error.h"

namespace sidestep {
namespace {

namespace po = boost::program_options;

constexpr Command kCommands[] = {Command::train, Command::eval, Command::inspect, Command::bench,
                                 Command::options};

bool is_flag(const OptionSpec& spec) {
  return std::holds_alternative<bool Settings::*>(spec.field);
}

std::vector<std::string> names_of(Command command) {
  std::vector<std::string> names{"help"};
  for (const OptionSpec& spec : option_table()) {
    if (spec.commands & bit(command)) names.push_back(spec.name);
  }
  return names;
}

std::string hint(std::string_view name, std::span<const std::string> names,
                 std::string_view prefix) {
  const std::string near = nearest_name(name, names);
  return near.empty() ? "" : fmt::format("; did you mean {}{}?", prefix, near);
}

/// Why `name` is no option here; `prefix` is "--" on the command line.
std::string unknown_option(Command command, std::string_view name, std::string_view prefix) {
  if (const OptionSpec* spec = find_option(name)) {
    std::vector<std::string> others;
    for (const Command other : kCommands) {
      if (spec->commands & bit(other)) others.emplace_back(to_string(other));
    }
    return fmt::format("{}{} is an option of {}, not of {}", prefix, name,
                       fmt::join(others, " and "), to_string(command));
  }
  return fmt::format("{}{}: unknown option of {}{}; see sidestep {} --help", prefix, name,
                     to_string(command), hint(name, names_of(command), prefix), to_string(command));
}

Command parse_command(const std::string& name) {
  std::vector<std::string> names;
  for (const Command command : kCommands) {
    if (name == to_string(command)) return command;
    names.emplace_back(to_string(command));
  }
  fail(Exit::settings, fmt::format("command: expected one of {}, found \"{}\"{}",
                                   fmt::join(names, ", "), name, hint(name, names, "")));
}

po::options_description boost_description(Command command) {
  po::options_description all;
  all.add_options()("help", "");
  for (const OptionSpec& spec : option_table()) {
    if (!(spec.commands & bit(command)) || spec.positional) continue;
    all.add_options()(spec.name.c_str(), po::value<std::string>(), spec.help.c_str());
  }
  return all;
}

po::parsed_options boost_parse(Command command, std::vector<std::string> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    // A flag stands alone or has on or off behind it; it takes no other next word for its value.
    const OptionSpec* spec =
        arguments[i].starts_with("--") ? find_option(arguments[i].substr(2)) : nullptr;
    if (!spec || !is_flag(*spec)) continue;
    const bool valued =
        i + 1 < arguments.size() && (arguments[i + 1] == "on" || arguments[i + 1] == "off");
    arguments[i] += "=" + (valued ? arguments[i + 1] : "on");
    if (valued) arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
  // No guessing: a prefix of a name is not the name. No short options.
  const int style = po::command_line_style::allow_long |
                    po::command_line_style::long_allow_adjacent |
                    po::command_line_style::long_allow_next;
  const auto description = boost_description(command);
  try {
    return po::command_line_parser(arguments)
        .options(description)
        .style(style)
        .allow_unregistered()
        .run();
  } catch (const po::error_with_option_name& error) {
    std::string name = error.get_option_name();
    name.erase(0, name.find_first_not_of('-'));
    const OptionSpec* spec = find_option(name);
    fail(Exit::settings, fmt::format("--{}: expected {}, found no value", name,
                                     spec ? expected_text(*spec) : "no value or another form"));
  } catch (const po::error& error) {
    fail(Exit::settings, fmt::format("command line: {}", error.what()));
  }
}

struct Given {
  const OptionSpec* spec;
  std::string text;
};

/// What the arguments after the command say, in their order, or nothing if --help is among them.
std::vector<Given> read_arguments(Command command, const std::vector<std::string>& arguments,
                                  bool& help) {
  std::vector<Given> given;
  const OptionSpec* positional = nullptr;
  for (const OptionSpec& spec : option_table()) {
    if (spec.positional && (spec.commands & bit(command))) positional = &spec;
  }
  for (const po::option& option : boost_parse(command, arguments).options) {
    if (option.string_key == "help") {
      help = true;
      return {};
    }
    const bool has_name = option.position_key < 0 && !option.string_key.empty();
    if (option.unregistered) fail(Exit::settings, unknown_option(command, option.string_key, "--"));
    const std::string text = option.value.empty() ? "" : option.value.front();
    const OptionSpec* spec = has_name ? find_option(option.string_key) : positional;
    if (!has_name && text.size() > 1 && text.starts_with('-')) {
      fail(Exit::settings, fmt::format("{}: unknown option of {}; options are written --name", text,
                                       to_string(command)));
    }
    if (!spec) {
      fail(Exit::settings,
           fmt::format("argument \"{}\": expected an option (--name value), found a word without "
                       "a name",
                       text));
    }
    if (has_name && option.original_tokens.size() > 1 && text.starts_with("--")) {
      fail(Exit::settings,
           fmt::format("--{}: expected {}, found the option {} (--{}={} if it is meant)",
                       spec->name, expected_text(*spec), text, spec->name, text));
    }
    for (const Given& earlier : given) {
      if (earlier.spec == spec) {
        fail(Exit::settings, fmt::format("{}{}: expected once, found \"{}\" and \"{}\"",
                                         has_name ? "--" : "", spec->name, earlier.text, text));
      }
    }
    given.push_back({spec, text});
  }
  return given;
}

std::string read_config(const std::string& file) {
  if (std::filesystem::is_directory(file))  // which opens, and then throws at the first read
    fail(Exit::settings, fmt::format("--config: expected a file, found the folder \"{}\"", file));
  std::ifstream in(file);
  if (!in) fail(Exit::settings, fmt::format("--config: cannot open \"{}\"", file));
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) fail(Exit::settings, fmt::format("--config: cannot read \"{}\"", file));
  return text;
}

void apply_config(Settings& settings, const std::string& file) {
  std::map<std::string, int> lines;
  for (const ConfigLine& line : parse_config(read_config(file), file)) {
    const std::string where = fmt::format("{}:{}: {}", file, line.line, line.key);
    const OptionSpec* spec = find_option(line.key);
    if (line.key == "config") {
      fail(Exit::settings, where + ": expected options of the run, found another config file");
    }
    // A file may serve several commands: an option of another one is checked and left aside.
    if (!spec || spec->positional) {
      fail(Exit::settings, fmt::format("{}:{}: {}", file, line.line,
                                       unknown_option(settings.command, line.key, "")));
    }
    const auto [earlier, fresh] = lines.emplace(line.key, line.line);
    if (!fresh)
      fail(Exit::settings,
           fmt::format("{}: expected once, found on line {} too", where, earlier->second));
    Settings scratch = settings;
    Settings& target = spec->commands & bit(settings.command) ? settings : scratch;
    set_option(target, *spec, line.value, Origin::file, where);
  }
}

}  // namespace

std::string nearest_name(std::string_view name, std::span<const std::string> names) {
  std::string best;
  std::size_t best_distance = name.size() / 2 + 1;  // farther than that is no help
  for (const std::string& candidate : names) {
    std::vector<std::size_t> row(candidate.size() + 1);  // Levenshtein, one row at a time
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= name.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i;
      for (std::size_t j = 1; j <= candidate.size(); ++j) {
        const std::size_t change = diagonal + (name[i - 1] == candidate[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
      }
    }
    // A name that was only cut short is near however long it is.
    const bool cut = name.size() >= 3 && candidate.starts_with(name);
    const std::size_t distance = cut ? std::min<std::size_t>(1, row.back()) : row.back();
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

Invocation parse_command_line(const std::vector<std::string>& arguments) {
  Invocation invocation;
  if (arguments.empty()) {
    // Nothing is done, so a script whose variable was empty must not take it for success.
    fail(Exit::settings,
         "expected a command (train, eval, inspect, bench), found none; see sidestep --help");
  }
  if (arguments[0] == "--help" || arguments[0] == "help") {
    invocation.information = help_text();
    return invocation;
  }
  if (arguments[0] == "--version") {
    invocation.version = true;
    return invocation;
  }
  if (arguments[0].starts_with('-')) {
    fail(Exit::settings,
         fmt::format("expected a command first (train, eval, inspect, bench), found \"{}\"",
                     arguments[0]));
  }
  const Command command = parse_command(arguments[0]);
  invocation.settings = default_settings(command);
  bool help = false;
  const auto given = read_arguments(command, {arguments.begin() + 1, arguments.end()}, help);
  if (help) {
    invocation.information = help_text(command);
    return invocation;
  }
  Settings& settings = invocation.settings;
  for (const Given& g : given) {
    if (g.spec->name == "config") apply_config(settings, g.text);
  }
  for (const Given& g : given) {
    const std::string where = g.spec->positional ? g.spec->name : "--" + g.spec->name;
    set_option(settings, *g.spec, g.text, Origin::command_line, where);
  }
  for (const OptionSpec& spec : option_table()) {
    if (spec.required && (spec.commands & bit(command)) && option_text(settings, spec).empty()) {
      const std::string form = spec.positional ? "FILE" : "--" + spec.name;
      fail(Exit::settings,
           fmt::format("{}: expected {} ({}), found none", to_string(command), form, spec.help));
    }
  }
  check_settings(settings);
  return invocation;
}

}  // namespace sidestep
