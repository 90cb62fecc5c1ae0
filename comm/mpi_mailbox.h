// The messages of one MPI communicator: fixed buffers, non-blocking in both directions. Owned by
// the MPI communicator, whose thread alone calls it.
#pragma once

#include <mpi.h>

#include <memory>
#include <optional>
#include <vector>

#include "comm/message.h"

namespace sidestep {

/// Sends from kMessagesInFlight slots; receives through one request that is always posted.
/// Allocates nothing after construction. Fails with Exit::communication.
class MpiMailbox {
 public:
  /// `comm` outlives it.
  explicit MpiMailbox(MPI_Comm comm);
  /// Never blocks: what is still on its way goes on without its owner.
  ~MpiMailbox();
  MpiMailbox(const MpiMailbox&) = delete;
  MpiMailbox& operator=(const MpiMailbox&) = delete;

  void send(int to, const Message& message);
  std::optional<Message> receive();

 private:
  void reclaim();

  MPI_Comm comm_;
  std::unique_ptr<Message[]> slots_;  ///< what MPI sends from
  std::vector<MPI_Request> sends_;    ///< by slot
  std::vector<int> free_;             ///< slots that may be used
  std::vector<int> finished_;         ///< scratch of reclaim()
  Message arrived_;
  MPI_Request receive_ = MPI_REQUEST_NULL;  ///< persistent, always started
};

}  // namespace sidestep
