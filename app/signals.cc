#include "app/signals.h"

#include <atomic>
#include <csignal>

namespace sidestep {
namespace {

// A handler can reach nothing but objects of static storage; this one flag is all it touches.
std::atomic<StopRequest> requested{StopRequest::none};
static_assert(std::atomic<StopRequest>::is_always_lock_free);

extern "C" void on_stop(int) {
  StopRequest expected = StopRequest::none;  // never weakens a terminate
  requested.compare_exchange_strong(expected, StopRequest::stop);
}

extern "C" void on_terminate(int) { requested.store(StopRequest::terminate); }

void install(int signal, void (*handler)(int), int flags) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | flags;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

}  // namespace

void install_signal_handlers() {
  for (const int signal : {SIGUSR1, SIGUSR2}) install(signal, on_stop, 0);
  // The default comes back with the first one, so that a second ends the process.
  for (const int signal : {SIGTERM, SIGINT})
    install(signal, on_terminate, static_cast<int>(SA_RESETHAND));
}

StopRequest stop_requested() { return requested.load(); }

void clear_stop_request() { requested.store(StopRequest::none); }

}  // namespace sidestep
