#include "comm/self_stop.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "core/base/error.h"

namespace sidestep {
namespace {

/// First waits until the process really has stopped: a SIGCONT that came before would be lost.
/// $1: process, $2: seconds.
constexpr const char* kHelper =
    "while [ -d /proc/$1 ] && ! grep -q '^State:.T' /proc/$1/status; do sleep 0.01; done; "
    "sleep $2; kill -CONT $1";

/// What posix_spawn does in the new process and with which signals.
class SpawnSettings {
 public:
  SpawnSettings() {
    posix_spawn_file_actions_init(&files_);
    posix_spawnattr_init(&attributes_);
    for (int fd = 0; fd < 3; ++fd)
      posix_spawn_file_actions_addopen(&files_, fd, "/dev/null", O_RDWR, 0);
    // The helper must not hold on to connections, pipes and files of a process that may die.
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
      if (const int fd = std::stoi(entry.path().filename().string()); fd >= 3)
        posix_spawn_file_actions_addclose(&files_, fd);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  const posix_spawn_file_actions_t* files() const { return &files_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t files_;
  posix_spawnattr_t attributes_;
};

}  // namespace

void stop_self_for(double seconds) {
  std::string process = std::to_string(getpid()), time = fmt::format("{:.3f}", seconds);
  std::string shell = "/bin/sh", option = "-c", script = kHelper;
  char* const arguments[] = {shell.data(),   option.data(), script.data(), shell.data(),
                             process.data(), time.data(),   nullptr};
  pid_t helper = 0;
  const SpawnSettings settings;
  const int error = posix_spawn(&helper, shell.c_str(), settings.files(), settings.attributes(),
                                arguments, environ);
  if (error != 0)
    fail(Exit::internal, fmt::format("stopping the own process: expected to start {}, found: {}",
                                     shell, std::strerror(error)));
  raise(SIGSTOP);
  kill(helper, SIGTERM);  // at its end already, unless somebody else has sent SIGCONT before it
  while (waitpid(helper, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void kill_self() {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

}  // namespace sidestep
