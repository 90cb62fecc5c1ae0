#include "comm/self_stop.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace sidestep {
namespace {

/// Runs `body` in a child process, whose exit code it gives.
template <class F>
pid_t in_child(const F& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  return child;
}

TEST(SelfStop, AStoppedProcessGoesOnAndLeavesNoHelper) {
  for (const double seconds : {0.0, 0.3}) {
    const pid_t child = in_child([&] {
      stop_self_for(seconds);
      const bool none_left = waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD;
      return none_left ? 42 : 1;
    });
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
    EXPECT_TRUE(WIFSTOPPED(status)) << "it did stop";
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 42);
  }
}

TEST(SelfStop, KillingItselfLooksLikeACrash) {
  const pid_t child = in_child([]() -> int { kill_self(); });
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

}  // namespace
}  // namespace sidestep
