// Autodiff as a pass: appends ordinary nodes that compute gradients. Main thread, before step 1.
#pragma once

#include <span>
#include <vector>

#include "core/graph/graph.h"

namespace sidestep {

struct Backward {
  NodeId first_node = 0;  ///< nodes from here on belong to backward
  /// By ParamId: the value that is the gradient; kNone where the loss does not depend on it.
  std::vector<ValueId> grads;
  /// By ParamId: "the gradient is final after node n"; kNone where there is none.
  std::vector<NodeId> final_after;
  /// By ParamId: "last read in a training step by node m"; kNone if never read.
  std::vector<NodeId> last_reader;
  /// Parameters in the order in which their gradients become final (those without one come last).
  std::vector<ParamId> ready_order;
};

/// Gradients of the sum over all elements of `loss` (its own gradient is 1) with respect to all
/// parameters of the graph.
Backward build_backward(GraphBuilder& builder, ValueId loss);

}  // namespace sidestep
