// The one error type. Thrown anywhere, on any thread; caught once, in app/main.cc.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace sidestep {

/// Exit codes of the program; README lists them for users.
enum class Exit : int {
  done = 0,
  internal = 1,       ///< a broken invariant of our own
  settings = 2,       ///< command line, config file, or settings that differ between ranks
  data = 3,           ///< input data
  checkpoint = 4,     ///< checkpoint or other output
  communication = 5,  ///< peer lost, time-out, MPI level too low
  numbers = 6,        ///< not finite
  device = 7,         ///< no device, shared device, out of memory
  stopped = 75,       ///< stopped on request, checkpoint saved; run again to continue
};

/// An error with the exit code it leads to. The message is one line: what was expected, what was
/// found, where, and what to do.
class Error : public std::runtime_error {
 public:
  Error(Exit code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Exit code() const noexcept { return code_; }

 private:
  Exit code_;
};

/// Throws Error. Callers format the message (fmt::format in files that nvcc does not compile).
[[noreturn]] void fail(Exit code, const std::string& message);

/// Throws Error(Exit::internal) naming the place when an invariant of our own does not hold.
void check(bool holds, std::string_view what,
           std::source_location where = std::source_location::current());

}  // namespace sidestep
