// Bulk-synchronous: every rank takes part in every round with an even share of the batch. The
// reference for accuracy and determinism.
#include "comm/policies/policies.h"

namespace sidestep {
namespace {

class Bsp final : public SyncPolicy {
 public:
  std::string_view name() const override { return "bsp"; }
  Family family() const override { return Family::gradient; }
  void plan(const StepInfo& info, WorkPlan& plan) override {
    even_shares(info.global_batch, info.ranks, plan.shares);
  }
};

}  // namespace

std::unique_ptr<SyncPolicy> make_bsp(const PolicyConfig&) { return std::make_unique<Bsp>(); }

}  // namespace sidestep
