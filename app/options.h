// The options of the program: one table that drives parsing, help, the saved config and the resume
// check. Pure functions over Settings; any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "app/settings.h"

namespace sidestep {

/// At resume: must equal the checkpoint's; may be changed (not given: the checkpoint's value); or
/// belongs to this invocation alone and is not compared.
enum class ResumeRule : std::uint8_t { must_match, may_change, free };

/// The member of Settings an option sets; its type decides how text is read and printed.
using OptionField =
    std::variant<bool Settings::*, std::int64_t Settings::*, double Settings::*,
                 std::string Settings::*, std::vector<std::int64_t> Settings::*,
                 Interval Settings::*, StepWindow Settings::*, Duration Settings::*>;

/// Commands that know an option, as bits.
enum CommandBits : unsigned { kTrain = 1, kEval = 2, kInspect = 4, kBench = 8, kOptions = 16 };

struct OptionSpec {
  std::string name;
  std::string group;
  OptionField field;
  std::string standard;  ///< the default, as text
  unsigned commands = 0;
  ResumeRule resume = ResumeRule::free;
  std::string help;
  std::vector<std::string> choices = {};  ///< if not empty, one of these
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above_low = false;   ///< `low` itself is not allowed
  bool required = false;    ///< may not be empty
  bool per_rank = false;    ///< ranks may differ in it
  bool positional = false;  ///< given without its name
};

const std::vector<OptionSpec>& option_table();
/// Null if there is no such option.
const OptionSpec* find_option(std::string_view name);
/// The nearest of `names` by edit distance, or "" if none is near.
std::string nearest_name(std::string_view name, std::span<const std::string> names);

std::string_view to_string(Command command);
std::string_view to_string(Origin origin);
unsigned bit(Command command);

/// Reads `text` into the option's field. Exit::settings in one line: `where` (such as "--lr"),
/// what was expected, what was found.
void set_option(Settings& settings, const OptionSpec& spec, const std::string& text, Origin origin,
                const std::string& where);
/// The value in its one normal form: set_option reads it back to the same value.
std::string option_text(const Settings& settings, const OptionSpec& spec);
/// "an integer from 1 to 1024", "one of none, linear"
std::string expected_text(const OptionSpec& spec);
Origin origin_of(const Settings& settings, const std::string& name);

/// All defaults.
Settings default_settings(Command command);
/// Rules between options; Exit::settings. parse_command_line and apply_resume have called it.
void check_settings(const Settings& settings);

/// What a command line asks for: `information` is text to print (--help), with nothing to run.
struct Invocation {
  Settings settings;
  std::string information;
  bool version = false;
};
/// Arguments without the program's name. Exact names only; the command line wins over --config
/// FILE. Exit::settings for anything unknown, with the nearest valid name as a hint.
Invocation parse_command_line(const std::vector<std::string>& arguments);

std::string help_text();
std::string help_text(Command command);
/// The README's table.
std::string options_markdown();

/// The settings of a run as an ini file that --config reads, each value with its origin.
std::string config_text(const Settings& settings);
struct ConfigLine {
  int line = 0;
  std::string key, value;
};
/// Exit::settings naming file and line for a line that is no comment and no `key = value`.
std::vector<ConfigLine> parse_config(const std::string& text, const std::string& file);

/// Compares with the config a checkpoint holds (config_text's form; keys this program does not know
/// are ignored). Options not given take the checkpoint's value. Exit::checkpoint listing each
/// option that must match and does not: its value there and now. Returns a line for each allowed
/// change.
std::vector<std::string> apply_resume(Settings& settings, const std::string& checkpoint_config);

/// For the comparison between ranks: (name, value) of every option that must not differ.
std::vector<std::pair<std::string, std::string>> settings_facts(const Settings& settings);

}  // namespace sidestep
