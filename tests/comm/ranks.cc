#include "tests/comm/ranks.h"

#include <exception>
#include <thread>
#include <vector>

namespace sidestep::testing {

void run_ranks(int ranks, const std::function<void(std::unique_ptr<Communicator>)>& rank_main,
               const ThreadGroupOptions& options) {
  auto group = make_thread_group(ranks, options);
  std::vector<std::exception_ptr> failures(group.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < group.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        rank_main(std::move(group[r]));
      } catch (...) {
        failures[r] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace sidestep::testing
