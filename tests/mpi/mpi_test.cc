// What every rank of an MPI job checks. Run with mpirun -n 2 and -n 4; an alarm ends a hang.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>

#include "comm/comm_thread.h"
#include "comm/mpi_job.h"
#include "tests/harness/collective_checks.h"
#include "tests/harness/message_checks.h"
#include "tests/harness/token_agent.h"

namespace sidestep::testing {
namespace {

constexpr unsigned kHangSeconds = 100;
constexpr int kHangStatus = 99;

std::unique_ptr<MpiJob>& job() {
  static std::unique_ptr<MpiJob> the_job;
  return the_job;
}

extern "C" void end_a_hang(int) {
  constexpr char kText[] = "watchdog: this rank hangs\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kText, sizeof(kText) - 1);
  _exit(kHangStatus);
}

TEST(Mpi, RanksAndHost) {
  EXPECT_GE(job()->size(), 2);
  EXPECT_GE(job()->rank(), 0);
  EXPECT_LT(job()->rank(), job()->size());
  EXPECT_EQ(job()->local_size(), job()->size()) << "the test runs on one host";
  EXPECT_EQ(job()->local_rank(), job()->rank());
  EXPECT_FALSE(job()->host().empty());
}

TEST(Mpi, Versions) {
  EXPECT_NE(MpiJob::compiled_version().find("MPI 3."), std::string::npos);
  EXPECT_FALSE(MpiJob::loaded_version().empty());
  EXPECT_EQ(MpiJob::loaded_version().find('\n'), std::string::npos);
}

TEST(Mpi, CollectivesOfEveryTypeAndSize) {
  const auto comm = job()->world();
  EXPECT_EQ(comm->kind(), "mpi");
  check_collectives(*comm, {0, 1, 17, 300007});
}

TEST(Mpi, CountsThatOneCallCannotTake) { check_collectives(*job()->world(7), {1, 7, 8, 100}); }

TEST(Mpi, SeveralInFlight) { check_many_in_flight(*job()->world()); }

TEST(Mpi, BlockingHelpers) { check_blocking_helpers(*job()->world()); }

TEST(Mpi, ThroughTheCommThread) {
  CommThread thread(job()->world(), {.max_in_flight = 4});
  std::vector<std::vector<float>> data(20, std::vector<float>(50000, 1.0f));
  std::vector<Event> events;
  for (auto& part : data)
    events.push_back(thread.all_reduce(view_of(part), Reduce::sum, Event(), "x", 0));
  for (std::size_t i = 0; i < data.size(); ++i) {
    events[i].wait();
    EXPECT_EQ(data[i], std::vector<float>(50000, static_cast<float>(job()->size())));
  }
  const auto comm = thread.stop();
  barrier(*comm);
}

TEST(Mpi, Messages) { check_messages(*job()->world()); }

TEST(Mpi, ACommunicatorGoesWithMessagesUnderWay) {
  const auto world = job()->world();
  {
    const auto other = world->duplicate();
    const int next = (world->rank() + 1) % world->size();
    for (int i = 0; i < kMessagesInFlight; ++i) other->send(next, message_of(i));
    receive_one(*other);  // the next one has a receive waiting for it
    barrier(*world);
  }
  barrier(*world);
}

TEST(Mpi, AgentsBesideCollectives) {
  CommThread thread(job()->world(), {.max_in_flight = 4, .control = true});
  TokenAgent agent(thread.rank(), thread.size(), 200);
  thread.add_agent(agent);
  std::vector<std::vector<float>> data(20, std::vector<float>(50000, 1.0f));
  std::vector<Event> events;
  for (auto& part : data)
    events.push_back(thread.all_reduce(view_of(part), Reduce::sum, Event(), "x", 0));
  for (const Event& event : events) event.wait();
  while (!agent.finished()) std::this_thread::yield();
  thread.remove_agent(agent);
  EXPECT_EQ(data.back(), std::vector<float>(50000, static_cast<float>(job()->size())));
  barrier(*thread.stop());
}

/// What the last rank does instead of the tests: "--abort" ends the job, "--hang" sleeps.
int misbehave(std::string_view how) {
  const auto comm = job()->world();
  barrier(*comm);
  if (how == "--hang") alarm(1);
  if (comm->rank() == comm->size() - 1) {
    if (how == "--abort") comm->abort(7);
    while (how == "--hang") pause();
  }
  barrier(*comm);
  return 0;
}

int run(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  struct sigaction action = {};
  action.sa_handler = end_a_hang;
  sigaction(SIGALRM, &action, nullptr);
  alarm(kHangSeconds);
  job() = std::make_unique<MpiJob>(argc, argv);
  const int status = argc > 1 ? misbehave(argv[1]) : RUN_ALL_TESTS();
  job().reset();
  return status;
}

}  // namespace
}  // namespace sidestep::testing

int main(int argc, char** argv) { return sidestep::testing::run(argc, argv); }
