// kill -9 at random moments of writing: a published file is always complete.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "core/base/rng.h"
#include "io/checkpoint_folder.h"
#include "io/output_file.h"
#include "tests/io_ckpt/io_ckpt_util.h"

namespace sidestep::testing {
namespace {

CheckpointContent content_of(std::int64_t step) {
  CheckpointContent content;
  content.tensors = {make_tensor<float>("/model/params/w", {40000},
                                        std::vector<float>(40000, static_cast<float>(step)))};
  content.attributes["/run"] = {{"step", step}};
  return content;
}

/// Writes new steps, and one name over and over, until it is killed.
[[noreturn]] void save_for_ever(const CheckpointFolder& folder, const std::filesystem::path& same,
                                std::int64_t first) {
  for (std::int64_t step = first;; ++step) {
    write_checkpoint(folder.file_of(step), content_of(step));
    write_checkpoint(same, content_of(step));
    folder.prune(3);
  }
}

bool has_temporaries(const ScratchFolder& folder) {
  for (const std::string& name : folder.names())
    if (temporary_owner(name)) return true;
  return false;
}

TEST(CheckpointKill, PublishedFilesAreCompleteWhenKilledAtAnyMoment) {
  const ScratchFolder scratch;
  const CheckpointFolder folder(scratch.path());
  const auto same = scratch / "best.h5";
  std::int64_t newest = 0;
  for (std::uint64_t attempt = 0; attempt < 20; ++attempt) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_for_ever(folder, same, newest + 1);
    // A random moment, not a synchronisation.
    std::this_thread::sleep_for(
        std::chrono::microseconds(2000 + random_below(rng_key(7, "kill"), attempt, 20000)));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    siginfo_t ended{};
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
    ASSERT_EQ(ended.si_code, CLD_KILLED);
    folder.remove_leftovers();  // the child is still a zombie here
    EXPECT_FALSE(has_temporaries(scratch)) << "attempt " << attempt;
    ::waitpid(child, nullptr, 0);
    for (const auto& file : folder.list())
      expect_equal(read_checkpoint(file), content_of(*step_of_checkpoint(file)));
    if (std::filesystem::exists(same)) {
      const auto content = read_checkpoint(same);
      expect_equal(content, content_of(std::get<std::int64_t>(*content.attribute("/run", "step"))));
    }
    if (!folder.list().empty()) newest = *step_of_checkpoint(folder.list().front());
  }
  EXPECT_GT(newest, 0);
}

}  // namespace
}  // namespace sidestep::testing
