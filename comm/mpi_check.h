// The check macro of MPI calls and the maker of MPI communicators. For comm/mpi_*.cc only.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cassert>
#include <cstdint>
#include <memory>

#include "comm/communicator.h"

namespace sidestep {

/// Fails with Exit::communication, MPI's words and the call, when the code is not MPI_SUCCESS.
void check_mpi(int code, const char* call);
#define SIDESTEP_MPI(call) ::sidestep::check_mpi((call), #call)

/// Asserts that no two threads are inside MPI at once: the level asked for is SERIALIZED.
class InsideMpi {
 public:
  explicit InsideMpi(std::atomic<bool>& inside) : inside_(inside) {
    [[maybe_unused]] const bool busy = inside_.exchange(true);
    assert(!busy && "two threads are inside MPI");
  }
  ~InsideMpi() { inside_.store(false); }
  InsideMpi(const InsideMpi&) = delete;
  InsideMpi& operator=(const InsideMpi&) = delete;

 private:
  std::atomic<bool>& inside_;
};

/// Duplicates `parent` (collective) and owns the duplicate. No MPI call gets more than `max_count`
/// elements.
std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm parent, std::int64_t max_count);

}  // namespace sidestep
