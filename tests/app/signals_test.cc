#include "app/signals.h"

#include <gtest/gtest.h>

#include <csignal>

namespace sidestep {
namespace {

class Signals : public testing::Test {
 protected:
  void SetUp() override {
    clear_stop_request();
    install_signal_handlers();
  }
  void TearDown() override {
    for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM, SIGINT}) std::signal(signal, SIG_DFL);
    clear_stop_request();
  }
};

TEST_F(Signals, UserSignalsAskForAStop) {
  for (const int signal : {SIGUSR1, SIGUSR2}) {
    clear_stop_request();
    EXPECT_EQ(stop_requested(), StopRequest::none);
    std::raise(signal);
    EXPECT_EQ(stop_requested(), StopRequest::stop);
  }
}

TEST_F(Signals, TerminateIsStrongerAndComesOnce) {
  std::raise(SIGTERM);
  EXPECT_EQ(stop_requested(), StopRequest::terminate);
  std::raise(SIGUSR1);
  EXPECT_EQ(stop_requested(), StopRequest::terminate);
  struct sigaction now = {};
  sigaction(SIGTERM, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

using SignalsDeathTest = Signals;

TEST_F(SignalsDeathTest, ASecondTermEndsTheProcess) {
  EXPECT_EXIT(
      {
        std::raise(SIGTERM);
        std::raise(SIGTERM);
      },
      testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace sidestep
