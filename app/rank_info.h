// Who takes part: host, device and cores of every rank. Gathered once, before the comm thread runs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace sidestep {

struct RankInfo {
  int rank = 0;
  std::string host;
  int local_rank = 0;     ///< among the ranks of its host
  std::string device;     ///< "cpu", "cuda:0"
  std::string device_id;  ///< unique on its host (a GPU's UUID); empty for the CPU
  std::string cores;      ///< the cores it may run on, as hex mask (bound_cores)
};

/// Cores this process may run on, as a hex mask of CPU numbers, lowest last.
std::string bound_cores();

/// Every rank's information, in rank order, on every rank.
std::vector<RankInfo> gather_rank_info(Communicator& comm, const RankInfo& mine);

/// Compute threads of a rank when none are asked for: its cores divided by the ranks of its host
/// that are bound to the same ones; at least 1.
int threads_for(const std::vector<RankInfo>& ranks, int rank);

/// "4 ranks on 2 hosts (3 on h1, 1 on h2)"
std::string ranks_text(const std::vector<RankInfo>& ranks);
/// A header and a line a rank: rank, host, device, cores.
std::vector<std::string> rank_table(const std::vector<RankInfo>& ranks);
/// Exit::device with the table if two ranks of a host have the same GPU.
void check_devices(const std::vector<RankInfo>& ranks);

/// Reads an environment variable; "" if it is not set.
using Environment = std::function<std::string(const std::string&)>;
Environment process_environment();

/// What launcher and scheduler say of this process; size 1 and rank 0 if they say nothing.
struct LaunchInfo {
  int size = 1;
  int rank = 0;
  std::string source;  ///< the variable that says so
};
LaunchInfo launch_info(const Environment& environment);

/// Exit::settings if MPI knows of one rank while the launcher or scheduler started several copies,
/// naming the launch forms that work. Call before any file is touched.
void check_launch(int mpi_size, const Environment& environment, bool allow_single);

}  // namespace sidestep
