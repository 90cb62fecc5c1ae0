// JSON strings written straight into a buffer, where a JSON library would allocate.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string_view>

namespace sidestep {

/// Appends `text` in quotes, with quotes, backslashes and control characters escaped.
inline void append_json_text(fmt::memory_buffer& to, std::string_view text) {
  to.push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') to.push_back('\\');
    if (static_cast<unsigned char>(c) < 0x20)
      fmt::format_to(std::back_inserter(to), "\\u{:04x}", static_cast<unsigned>(c));
    else
      to.push_back(c);
  }
  to.push_back('"');
}

}  // namespace sidestep
