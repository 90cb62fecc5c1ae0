// What a synchronization policy decides, as plain data. A policy never touches MPI, streams or
// tensors; the round engine carries its decisions out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sidestep {

/// What is known when a step begins.
struct StepInfo {
  std::int64_t step = 0;
  std::int64_t global_batch = 0;  ///< samples of this step over all ranks (less at an epoch's end)
  int rank = 0;
  int ranks = 1;
};

/// How much each rank computes in this step: samples by rank, in rank order; they add up to the
/// global batch.
struct WorkPlan {
  std::vector<std::int64_t> shares;
};

/// Whose weight divides the summed gradient.
enum class Divisor : std::uint8_t { participants, nominal };

/// When a round closes and what becomes of late work.
struct RoundRule {
  int quorum = 0;  ///< ranks that must have arrived; 0 means all
  Divisor divisor = Divisor::participants;
};

class SyncPolicy {
 public:
  virtual ~SyncPolicy() = default;
  virtual std::string_view name() const = 0;
  /// Writes into `plan` (reused, so that a step allocates nothing).
  virtual void plan(const StepInfo& info, WorkPlan& plan) = 0;
  virtual RoundRule rule(std::int64_t step) = 0;
};

/// Fails with Exit::settings for an unknown name, listing the known ones.
std::unique_ptr<SyncPolicy> make_policy(const std::string& name);
std::vector<std::string> policy_names();

/// Shares of `batch` over `ranks` that differ by at most one sample; the first ranks get more.
void even_shares(std::int64_t batch, int ranks, std::vector<std::int64_t>& shares);

}  // namespace sidestep
