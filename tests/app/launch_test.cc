// Who takes part: launch variables, cores, devices.
#include <gmock/gmock.h>

#include <map>

#include "app/rank_info.h"
#include "tests/app/expect_error.h"
#include "tests/app/run_ranks.h"

namespace sidestep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Environment fake(std::map<std::string, std::string> variables) {
  return [variables](const std::string& name) {
    const auto at = variables.find(name);
    return at == variables.end() ? std::string() : at->second;
  };
}

TEST(Launch, CopiesOfOneRankAreRefused) {
  const auto environment = fake({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "2"}});
  const std::string message =
      message_of(Exit::settings, [&] { check_launch(1, environment, false); });
  EXPECT_THAT(message, HasSubstr("4 ranks (SLURM_NTASKS)"));
  EXPECT_THAT(message, HasSubstr("mpirun sidestep"));
  EXPECT_THAT(message, HasSubstr("srun --mpi=pmix sidestep"));
  EXPECT_NO_THROW(check_launch(1, environment, true));
  EXPECT_NO_THROW(check_launch(4, environment, false));
}

TEST(Launch, AnMpirunOfAnotherMpiIsNoticed) {
  EXPECT_THAT(message_of(Exit::settings,
                         [] {
                           check_launch(1, fake({{"PMI_SIZE", "8"}}), false);
                         }),
              HasSubstr("PMI_SIZE"));
}

TEST(Launch, TheLaunchersWordComesBeforeTheSchedulers) {
  EXPECT_NO_THROW(
      check_launch(1, fake({{"SLURM_NTASKS", "4"}, {"OMPI_COMM_WORLD_SIZE", "1"}}), false));
  EXPECT_NO_THROW(
      check_launch(1, fake({{"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}}), false));
}

TEST(Launch, WithoutALauncherOrWithNonsenseNothingIsSaid) {
  EXPECT_NO_THROW(check_launch(1, fake({}), false));
  EXPECT_NO_THROW(check_launch(1, fake({{"SLURM_NTASKS", "many"}}), false));
  EXPECT_EQ(launch_info(fake({})).size, 1);
  EXPECT_EQ(launch_info(fake({{"OMPI_COMM_WORLD_SIZE", "3"}, {"OMPI_COMM_WORLD_RANK", "2"}})).rank,
            2);
}

RankInfo rank(int index, const std::string& host, const std::string& cores,
              const std::string& gpu = "") {
  return {index, host, 0, gpu.empty() ? "cpu" : "cuda:0", gpu, cores};
}

TEST(Ranks, ThreadsAreTheCoresSharedWithRanksBoundAlike) {
  const std::vector<RankInfo> shared{rank(0, "h1", "ff"), rank(1, "h1", "ff"), rank(2, "h2", "ff")};
  EXPECT_EQ(threads_for(shared, 0), 4);
  EXPECT_EQ(threads_for(shared, 2), 8);
  const std::vector<RankInfo> bound{rank(0, "h1", "f"), rank(1, "h1", "f0")};
  EXPECT_EQ(threads_for(bound, 1), 4);
  const std::vector<RankInfo> crowded{rank(0, "h1", "1"), rank(1, "h1", "1")};
  EXPECT_EQ(threads_for(crowded, 0), 1);
}

TEST(Ranks, Text) {
  EXPECT_EQ(ranks_text({rank(0, "h1", "1"), rank(1, "h2", "1"), rank(2, "h1", "1")}),
            "3 ranks on 2 hosts (2 on h1, 1 on h2)");
  EXPECT_EQ(ranks_text({rank(0, "h1", "1")}), "1 rank on 1 host (1 on h1)");
  EXPECT_THAT(rank_table({rank(0, "node17", "f")}),
              ElementsAre("rank  host    device    cores", "   0  node17  cpu       4"));
}

TEST(Ranks, OneGpuForTwoRanksIsRefused) {
  const std::vector<RankInfo> twice{rank(0, "h1", "1", "GPU-a"), rank(1, "h2", "1", "GPU-a"),
                                    rank(2, "h2", "1", "GPU-a")};
  const std::string message = message_of(Exit::device, [&] { check_devices(twice); });
  EXPECT_THAT(message, HasSubstr("ranks 1 and 2 of host h2"));
  EXPECT_THAT(message, HasSubstr("GPU-a"));
  EXPECT_NO_THROW(check_devices({rank(0, "h1", "1", "GPU-a"), rank(1, "h1", "1", "GPU-b")}));
  EXPECT_NO_THROW(check_devices({rank(0, "h1", "1"), rank(1, "h1", "1")}));
}

TEST(Ranks, AreGatheredInOrder) {
  run_ranks(3, [](Communicator& comm) {
    const auto ranks =
        gather_rank_info(comm, rank(comm.rank(), "h" + std::to_string(comm.rank()), bound_cores()));
    ASSERT_EQ(ranks.size(), 3u);
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(ranks[static_cast<std::size_t>(r)].rank, r);
      EXPECT_EQ(ranks[static_cast<std::size_t>(r)].host, "h" + std::to_string(r));
      EXPECT_GE(threads_for(ranks, r), 1);
    }
  });
}

}  // namespace
}  // namespace sidestep
