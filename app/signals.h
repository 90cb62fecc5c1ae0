// Requests to stop that arrive as signals. The handler only sets a flag; the step loop reads it at
// a step boundary and agrees on it with the other ranks, so that one signalled rank is enough.
#pragma once

#include <cstdint>

namespace sidestep {

/// `stop`: USR1 or USR2: finish the step, save, exit 75. `terminate`: TERM or INT: the same as far
/// as the time given allows; a second TERM or INT ends the process at once.
enum class StopRequest : std::uint8_t { none, stop, terminate };

/// Installs the handlers for the whole process. After MPI's initialisation.
void install_signal_handlers();
/// The strongest request so far. Any thread.
StopRequest stop_requested();
/// Sets *flag to 1 when the process is asked to end; null: no more. The flag outlives its time here.
void set_on_terminate(std::int64_t* flag);
/// For tests.
void clear_stop_request();

}  // namespace sidestep
