// A process that stops or kills itself on purpose, to show what a stalled or lost rank does. Used
// by the delay injector only. Any thread; all threads of the process are stopped.
#pragma once

namespace sidestep {

/// Stops the whole process (SIGSTOP) and returns after about so many seconds, when a small helper
/// process has let it go on. The helper is gone by then; it ends by itself in every other case too.
/// Exit::internal if the helper cannot be started.
void stop_self_for(double seconds);

/// Ends the process at once, as a crash of the node would (SIGKILL).
[[noreturn]] void kill_self();

}  // namespace sidestep
