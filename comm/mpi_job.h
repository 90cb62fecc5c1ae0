// MPI for one process: initialised once, on the main thread, before anything else; only comm/mpi_*
// includes mpi.h. Main thread, but for abort().
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "comm/communicator.h"

namespace sidestep {

/// Initialises MPI with thread level SERIALIZED at least; fails with Exit::communication if less is
/// provided. The destructor finalizes unless abort() was called.
class MpiJob {
 public:
  MpiJob(int& argc, char**& argv);
  ~MpiJob();
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Rank among those of this host, and how many there are.
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  const std::string& host() const { return host_; }

  /// Most elements that one MPI call gets; MPI counts are ints.
  static constexpr std::int64_t kMaxCount = std::int64_t{1} << 30;
  /// A communicator of all ranks (a duplicate of the world). Collective. Destroy it before the job.
  std::unique_ptr<Communicator> world(std::int64_t max_count = kMaxCount);
  /// Ends all ranks at once with the code (MPI_Abort); any thread (the watchdog's one MPI call).
  [[noreturn]] static void abort(int exit_code) noexcept;
  /// Compiled and loaded library versions, for --version.
  static std::string compiled_version();
  static std::string loaded_version();

 private:
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
  std::string host_;
};

}  // namespace sidestep
