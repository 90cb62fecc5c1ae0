#include "app/signals.h"

#include <atomic>
#include <csignal>

namespace sidestep {
namespace {

// A handler can reach nothing but objects of static storage; these are all it touches.
std::atomic<StopRequest> requested{StopRequest::none};
std::atomic<std::int64_t*> terminated{nullptr};
static_assert(std::atomic<StopRequest>::is_always_lock_free);
static_assert(std::atomic<std::int64_t*>::is_always_lock_free);

extern "C" void on_stop(int) {
  StopRequest expected = StopRequest::none;  // never weakens a terminate
  requested.compare_exchange_strong(expected, StopRequest::stop);
}

extern "C" void on_terminate(int) {
  requested.store(StopRequest::terminate);
  if (std::int64_t* const flag = terminated.load()) *flag = 1;
}

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

void set_on_terminate(std::int64_t* flag) { terminated.store(flag); }

void clear_stop_request() { requested.store(StopRequest::none); }

}  // namespace sidestep
