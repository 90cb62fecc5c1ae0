#include "app/rank_info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace sidestep {
namespace {

int count_cores(const std::string& mask) {
  int cores = 0;
  for (const char c : mask) {
    unsigned digit = 0;
    std::from_chars(&c, &c + 1, digit, 16);
    cores += std::popcount(digit);
  }
  return cores;
}

/// The number a variable holds, or 0.
int variable(const Environment& environment, const std::string& name) {
  const std::string text = environment(name);
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return std::max(value, 0);
}

}  // namespace

std::string bound_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return "1";
  std::string mask;
  for (int first = CPU_SETSIZE - 4; first >= 0; first -= 4) {
    unsigned digit = 0;
    for (int i = 0; i < 4; ++i) digit |= CPU_ISSET(first + i, &set) ? 1u << i : 0u;
    if (digit != 0 || !mask.empty()) mask += fmt::format("{:x}", digit);
  }
  return mask;
}

std::vector<RankInfo> gather_rank_info(Communicator& comm, const RankInfo& mine) {
  const nlohmann::json json{{"host", mine.host},
                            {"local_rank", mine.local_rank},
                            {"device", mine.device},
                            {"device_id", mine.device_id},
                            {"cores", mine.cores}};
  std::vector<RankInfo> ranks;
  for (const std::string& text : gather_texts(comm, json.dump())) {
    const auto j = nlohmann::json::parse(text);
    ranks.push_back({static_cast<int>(ranks.size()), j["host"], j["local_rank"], j["device"],
                     j["device_id"], j["cores"]});
  }
  return ranks;
}

int threads_for(const std::vector<RankInfo>& ranks, int rank) {
  const RankInfo& mine = ranks[static_cast<std::size_t>(rank)];
  const auto sharing = std::count_if(ranks.begin(), ranks.end(), [&](const RankInfo& other) {
    return other.host == mine.host && other.cores == mine.cores;
  });
  return std::max(1, count_cores(mine.cores) / static_cast<int>(sharing));
}

std::string ranks_text(const std::vector<RankInfo>& ranks) {
  std::vector<std::pair<std::string, int>> hosts;  // in the order of their first rank
  for (const RankInfo& r : ranks) {
    const auto at =
        std::find_if(hosts.begin(), hosts.end(), [&](const auto& h) { return h.first == r.host; });
    if (at == hosts.end()) {
      hosts.emplace_back(r.host, 1);
    } else {
      ++at->second;
    }
  }
  std::vector<std::string> parts;
  for (const auto& [host, count] : hosts) parts.push_back(fmt::format("{} on {}", count, host));
  return fmt::format("{} {} on {} {} ({})", ranks.size(), ranks.size() == 1 ? "rank" : "ranks",
                     hosts.size(), hosts.size() == 1 ? "host" : "hosts", fmt::join(parts, ", "));
}

std::vector<std::string> rank_table(const std::vector<RankInfo>& ranks) {
  std::size_t width = 4;
  for (const RankInfo& r : ranks) width = std::max(width, r.host.size());
  std::vector<std::string> lines{
      fmt::format("{:>4}  {:<{}}  {:<8}  {}", "rank", "host", width, "device", "cores")};
  for (const RankInfo& r : ranks) {
    const std::string id = r.device_id.empty() ? "" : " (" + r.device_id + ")";
    lines.push_back(fmt::format("{:>4}  {:<{}}  {:<8}  {}{}", r.rank, r.host, width, r.device,
                                count_cores(r.cores), id));
  }
  return lines;
}

void check_devices(const std::vector<RankInfo>& ranks) {
  for (std::size_t b = 0; b < ranks.size(); ++b) {
    for (std::size_t a = 0; a < b; ++a) {
      if (ranks[b].device_id.empty() || ranks[a].host != ranks[b].host ||
          ranks[a].device_id != ranks[b].device_id) {
        continue;
      }
      fail(Exit::device,
           fmt::format(
               "devices: expected a GPU for each rank, found ranks {} and {} of host {} on {}; "
               "start at most one rank for each visible GPU:\n{}",
               a, b, ranks[b].host, ranks[b].device, fmt::join(rank_table(ranks), "\n")));
    }
  }
}

Environment process_environment() {
  return [](const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return std::string(value ? value : "");
  };
}

LaunchInfo launch_info(const Environment& environment) {
  struct Source {
    const char* size;
    const char* rank;
  };
  // A launcher's word comes before the scheduler's: mpirun -n 1 inside a larger allocation is
  // meant.
  constexpr Source kSources[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                 {"PMI_SIZE", "PMI_RANK"},
                                 {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"},
                                 {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
                                 {"SLURM_NTASKS", "SLURM_PROCID"},
                                 {"SLURM_NPROCS", "SLURM_PROCID"},
                                 {"PALS_SIZE", "PALS_RANKID"},
                                 {"FLUX_JOB_SIZE", "FLUX_TASK_RANK"}};
  for (const Source& source : kSources) {
    if (const int size = variable(environment, source.size); size > 0) {
      return {size, variable(environment, source.rank), source.size};
    }
  }
  return {};
}

void check_launch(int mpi_size, const Environment& environment, bool allow_single) {
  const LaunchInfo launch = launch_info(environment);
  if (allow_single || mpi_size > 1 || launch.size <= 1) return;
  fail(Exit::settings, fmt::format("launch: expected a job of {} ranks ({}), found an MPI job of "
                                   "one: copy {} of {} would run alone; "
                                   "start it with \"mpirun sidestep ...\" (the mpirun of the MPI "
                                   "it was built with) or \"srun "
                                   "--mpi=pmix sidestep ...\", or say --allow-single",
                                   launch.size, launch.source, launch.rank, launch.size));
}

}  // namespace sidestep
