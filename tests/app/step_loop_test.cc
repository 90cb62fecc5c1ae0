// "Nothing is allocated inside a step", counted at the C allocator: two in-process ranks train as
// the trainer's loop does, with reports, and the threads that carry a step must not allocate.
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <barrier>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "app/options.h"
#include "app/recorder.h"
#include "app/rig.h"
#include "comm/thread_group.h"
#include "io/dataset.h"
#include "io/run_folder.h"
#include "io/storage_thread.h"
#include "tests/harness/malloc_count.h"

namespace sidestep {
namespace {

using testing::AllocationSite;

constexpr int kRanks = 2;
constexpr std::int64_t kWarmUp = 10, kCounted = 100;

struct StepLoopCase {
  const char* name;
  const char* model;
  const char* optimizer;
  const char* overlap;
  double clip_norm;
};

void PrintTo(const StepLoopCase& c, std::ostream* out) { *out << c.name; }

/// 50 samples in batches of 16: an epoch is four steps and ends with a batch of 2, so that
/// shuffling and the plan of the tail fall into the window too.
Settings settings_of(const StepLoopCase& c) {
  Settings s = default_settings(Command::train);
  s.model = c.model;
  s.hidden = {64, 32};
  s.data = "synthetic:50x28x28x1x10";
  s.batch = 16;
  s.seed = 1;
  s.optimizer = c.optimizer;
  s.lr = 0.001;
  s.overlap = c.overlap;
  s.clip_norm = c.clip_norm;
  s.bucket_mb = 0.02;  // several buckets
  s.threads = 1;
  s.metrics_every = 1;
  s.ranks_every = 20;
  return s;
}

/// The trainer's loop over a number of steps.
void run_steps(Rig& rig, Recorder& recorder, Detector& detector, std::int64_t steps) {
  for (std::int64_t i = 0; i < steps; ++i) {
    rig.enqueue(false);
    while (rig.outstanding() > 1) {
      const StepReport report = rig.complete();
      detector.observe(report.after.step, report.round.entries);
      recorder.step(report, std::nullopt, detector);
    }
  }
}

/// One rank; rank 0 opens and closes the window while the others wait at the barrier.
void run_rank(const Settings& settings, Dataset& data, std::unique_ptr<Communicator> comm, int rank,
              const RunFolder& folder, std::barrier<>& barrier,
              std::vector<AllocationSite>& sites) {
  pthread_setname_np(pthread_self(), "main");
  const Shape sample = data.sample_shape();
  Rig rig({.settings = settings,
           .device = {},
           .model = {.name = settings.model,
                     .height = sample[0],
                     .width = sample[1],
                     .channels = sample[2],
                     .classes = data.classes(),
                     .hidden = settings.hidden},
           .data = data,
           .goal = {.steps = 2 * kWarmUp + kCounted},
           .threads = 1,
           .shared_update = false},
          std::move(comm));
  Recorder recorder({.settings = settings,
                     .folder = rank == 0 ? &folder : nullptr,
                     .ranks = {{0, "here", 0, "cpu", "", ""}, {1, "here", 1, "cpu", "", ""}},
                     .rank = rank,
                     .dataset_size = data.size(),
                     .total_steps = 2 * kWarmUp + kCounted,
                     .resumed = false,
                     .start = {}});
  Detector detector({.ranks = kRanks, .every = 1 << 30});  // an event may allocate
  rig.start({});
  run_steps(rig, recorder, detector, kWarmUp);
  barrier.arrive_and_wait();
  if (rank == 0) testing::begin_counting_allocations();
  barrier.arrive_and_wait();
  run_steps(rig, recorder, detector, kCounted);
  barrier.arrive_and_wait();
  if (rank == 0) sites = testing::end_counting_allocations();
  barrier.arrive_and_wait();
  run_steps(rig, recorder, detector, kWarmUp);
  while (rig.outstanding() > 0) rig.complete();
}

class StepLoop : public ::testing::TestWithParam<StepLoopCase> {};

TEST_P(StepLoop, AllocatesNothing) {
  const Settings settings = settings_of(GetParam());
  const std::filesystem::path path =
      ::testing::TempDir() + "/step-loop-" + std::to_string(getpid());
  std::vector<AllocationSite> sites;
  {
    StorageThread storage;
    const DataPair data = open_data(settings.data, 1, storage, std::nullopt);
    const RunFolder folder(path, RunFolder::Mode::fresh);
    auto comms = make_thread_group(kRanks);
    std::barrier barrier(kRanks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank)
      threads.emplace_back([&, rank] {
        run_rank(settings, *data.train, std::move(comms[static_cast<std::size_t>(rank)]), rank,
                 folder, barrier, sites);
      });
    for (std::thread& thread : threads) thread.join();
  }
  std::filesystem::remove_all(path);
  const std::set<std::string> of_a_step = {"main", "compute", "update", "any"};
  std::map<std::string, std::int64_t> counts;
  for (const AllocationSite& site : sites) {
    const bool ours = site.shared_object.empty();
    counts[site.thread + ", " + (ours ? "our own code" : "inside " + site.shared_object)] += site.count;
    if (ours && of_a_step.contains(site.thread))
      ADD_FAILURE() << site.count << " allocations on thread " << site.thread << site.stack;
  }
  for (const auto& [who, count] : counts)
    std::printf("allocations in %lld steps on %d ranks: %lld by thread %s\n",
                static_cast<long long>(kCounted), kRanks, static_cast<long long>(count),
                who.c_str());
}

INSTANTIATE_TEST_SUITE_P(All, StepLoop,
                         ::testing::Values(StepLoopCase{"LenetSgd", "lenet", "sgd", "full", 0},
                                           StepLoopCase{"MlpAdamw", "mlp", "adamw", "full", 0},
                                           StepLoopCase{"MlpClipped", "mlp", "sgd", "backward", 1},
                                           StepLoopCase{"MlpNoOverlap", "mlp", "sgd", "off", 0}),
                         [](const auto& param) { return std::string(param.param.name); });

/// The count must not be idle: what allocates is seen, with its thread, and told from what is not
/// ours.
TEST(MallocCount, SeesAllocations) {
  testing::begin_counting_allocations();
  std::thread worker([] {
    pthread_setname_np(pthread_self(), "compute");
    for (int i = 0; i < 3; ++i) {
      const std::unique_ptr<std::string> text(new std::string(100, 'x'));
      ASSERT_EQ(text->size(), 100u);
    }
  });
  worker.join();
  std::int64_t seen = 0;
  for (const AllocationSite& site : testing::end_counting_allocations())
    if (site.thread == "compute" && site.shared_object.empty()) seen += site.count;
  EXPECT_GE(seen, 6);
}

}  // namespace
}  // namespace sidestep
