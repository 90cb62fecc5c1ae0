#include "core/base/error.h"

namespace sidestep {

void fail(Exit code, const std::string& message) { throw Error(code, message); }

void check(bool holds, std::string_view what, std::source_location where) {
  if (holds) return;
  std::string file = where.file_name();
  if (const auto slash = file.rfind('/'); slash != std::string::npos) file.erase(0, slash + 1);
  throw Error(Exit::internal, "internal error at " + file + ":" + std::to_string(where.line()) +
                                  ": " + std::string(what));
}

}  // namespace sidestep
