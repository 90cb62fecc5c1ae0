// Option values: from text to a member of Settings and back.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <type_traits>

#include "app/options.h"
#include "core/base/error.h"

namespace sidestep {
namespace {

template <class T>
std::optional<T> number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) return std::nullopt;
  }
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

// Each read() gives nothing if the text has the wrong form; ranges are checked afterwards.
std::optional<bool> read(std::string_view text, bool*) {
  for (const char* yes : {"on", "true", "yes", "1"}) {
    if (text == yes) return true;
  }
  for (const char* no : {"off", "false", "no", "0"}) {
    if (text == no) return false;
  }
  return std::nullopt;
}

std::optional<std::int64_t> read(std::string_view text, std::int64_t*) {
  return number<std::int64_t>(text);
}

std::optional<double> read(std::string_view text, double*) { return number<double>(text); }

std::optional<std::string> read(std::string_view text, std::string*) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 32 || c == 127) return std::nullopt;
  }
  return std::string(text);
}

std::optional<std::vector<std::int64_t>> read(std::string_view text, std::vector<std::int64_t>*) {
  std::vector<std::int64_t> list;
  for (const std::string_view part : split(text, ',')) {
    const auto value = number<std::int64_t>(part);
    if (!value) return std::nullopt;
    list.push_back(*value);
  }
  return list;
}

std::optional<Interval> read(std::string_view text, Interval*) {
  const bool steps = text.ends_with("steps");
  if (steps) text.remove_suffix(5);
  const auto value = number<std::int64_t>(text);
  if (!value || *value < 0) return std::nullopt;
  return steps ? Interval{0, *value} : Interval{*value, 0};
}

std::optional<StepWindow> read(std::string_view text, StepWindow*) {
  if (text.empty()) return StepWindow{};
  const auto parts = split(text, ':');
  if (parts.size() != 2) return std::nullopt;
  const auto first = number<std::int64_t>(parts[0]);
  const auto last = number<std::int64_t>(parts[1]);
  if (!first || !last || *first < 0 || *last <= *first) return std::nullopt;
  return StepWindow{*first, *last};
}

std::optional<Duration> read(std::string_view text, Duration*) {
  const auto parts = split(text, ':');
  if (parts.size() == 3) {  // HH:MM:SS, as schedulers write it
    const auto h = number<std::int64_t>(parts[0]);
    const auto m = number<std::int64_t>(parts[1]);
    const auto s = number<std::int64_t>(parts[2]);
    if (!h || !m || !s || *h < 0 || *m < 0 || *s < 0 || *m > 59 || *s > 59) return std::nullopt;
    return Duration{static_cast<double>(*h) * 3600 + static_cast<double>(*m * 60 + *s)};
  }
  if (text.empty()) return std::nullopt;
  const double unit = text.back() == 's'   ? 1
                      : text.back() == 'm' ? 60
                      : text.back() == 'h' ? 3600
                                           : 0;
  const auto value = number<double>(text.substr(0, text.size() - 1));
  if (unit == 0 || !value || *value < 0) return std::nullopt;
  return Duration{*value * unit};
}

std::string print(bool value) { return value ? "on" : "off"; }
std::string print(std::int64_t value) { return std::to_string(value); }
std::string print(double value) { return fmt::format("{}", value); }  // shortest that reads back
std::string print(const std::string& value) { return value; }
std::string print(const std::vector<std::int64_t>& value) {
  return fmt::format("{}", fmt::join(value, ","));
}
std::string print(const Interval& value) {
  return value.steps > 0 ? fmt::format("{}steps", value.steps) : std::to_string(value.epochs);
}
std::string print(const StepWindow& value) {
  return value.last > 0 ? fmt::format("{}:{}", value.first, value.last) : "";
}
std::string print(const Duration& value) { return fmt::format("{}s", value.seconds); }

bool in_range(const OptionSpec& spec, double value) {
  return (spec.above_low ? value > spec.low : value >= spec.low) && value <= spec.high;
}

template <class T>
bool allowed(const OptionSpec& spec, const T& value) {
  if constexpr (std::is_same_v<T, std::int64_t> || std::is_same_v<T, double>) {
    return in_range(spec, static_cast<double>(value));
  } else if constexpr (std::is_same_v<T, Duration>) {
    return in_range(spec, value.seconds);
  } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
    for (const std::int64_t v : value) {
      if (!in_range(spec, static_cast<double>(v))) return false;
    }
    return true;
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (spec.required && value.empty()) return false;
    for (const std::string& choice : spec.choices) {
      if (value == choice) return true;
    }
    return spec.choices.empty();
  }
  return true;
}

std::string range_text(const OptionSpec& spec) {
  const auto limit = [](double value) {
    return std::abs(value) < 1e15 && value == std::floor(value)
               ? std::to_string(static_cast<std::int64_t>(value))
               : fmt::format("{}", value);
  };
  if (!std::isfinite(spec.low)) return "";
  if (spec.above_low)
    return fmt::format(" above {}, at most {}", limit(spec.low), limit(spec.high));
  return fmt::format(" from {} to {}", limit(spec.low), limit(spec.high));
}

template <class M>
struct member_type;
template <class T>
struct member_type<T Settings::*> {
  using type = T;
};

}  // namespace

std::string expected_text(const OptionSpec& spec) {
  if (!spec.choices.empty()) return fmt::format("one of {}", fmt::join(spec.choices, ", "));
  struct Form {
    const OptionSpec& spec;
    std::string operator()(bool Settings::*) const { return "on or off"; }
    std::string operator()(std::int64_t Settings::*) const {
      return "an integer" + range_text(spec);
    }
    std::string operator()(double Settings::*) const { return "a number" + range_text(spec); }
    std::string operator()(std::string Settings::*) const {
      return spec.required ? "a text that is not empty" : "a text";
    }
    std::string operator()(std::vector<std::int64_t> Settings::*) const {
      return "integers" + range_text(spec) + " with commas between";
    }
    std::string operator()(Interval Settings::*) const {
      return "a number of epochs (2) or of steps (200steps), 0 for never";
    }
    std::string operator()(StepWindow Settings::*) const {
      return "a window of steps A:B with 0 <= A < B";
    }
    std::string operator()(Duration Settings::*) const {
      return "a time such as 90s, 30m, 2h or 01:30:00";
    }
  };
  return std::visit(Form{spec}, spec.field);
}

void set_option(Settings& settings, const OptionSpec& spec, const std::string& text, Origin origin,
                const std::string& where) {
  std::visit(
      [&](auto member) {
        using T = typename member_type<decltype(member)>::type;
        auto value = read(text, static_cast<T*>(nullptr));
        if (!value || !allowed(spec, *value)) {
          const std::string near = nearest_name(text, spec.choices);
          fail(Exit::settings,
               fmt::format("{}: expected {}, found \"{}\"{}", where, expected_text(spec), text,
                           near.empty() ? "" : fmt::format("; did you mean {}?", near)));
        }
        settings.*member = std::move(*value);
      },
      spec.field);
  settings.origins[spec.name] = origin;
}

std::string option_text(const Settings& settings, const OptionSpec& spec) {
  return std::visit([&](auto member) { return print(settings.*member); }, spec.field);
}

}  // namespace sidestep
