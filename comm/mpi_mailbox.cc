#include "comm/mpi_mailbox.h"

#include <fmt/format.h>

#include "comm/mpi_check.h"
#include "core/base/error.h"

namespace sidestep {
namespace {

constexpr int kTag = 1;
constexpr int kBytes = sizeof(Message);

}  // namespace

MpiMailbox::MpiMailbox(MPI_Comm comm)
    : comm_(comm),
      slots_(std::make_unique<Message[]>(kMessagesInFlight)),
      sends_(kMessagesInFlight, MPI_REQUEST_NULL),
      finished_(kMessagesInFlight) {
  free_.reserve(kMessagesInFlight);
  for (int slot = 0; slot < kMessagesInFlight; ++slot) free_.push_back(slot);
  SIDESTEP_MPI(MPI_Recv_init(&arrived_, kBytes, MPI_BYTE, MPI_ANY_SOURCE, kTag, comm_, &receive_));
  SIDESTEP_MPI(MPI_Start(&receive_));
}

MpiMailbox::~MpiMailbox() {
  MPI_Cancel(&receive_);
  MPI_Wait(&receive_, MPI_STATUS_IGNORE);  // of a cancelled receive: local, returns at once
  MPI_Request_free(&receive_);
  int all_sent = 0;
  MPI_Testall(kMessagesInFlight, sends_.data(), &all_sent, MPI_STATUSES_IGNORE);
  if (all_sent != 0) return;
  // MPI cannot be trusted to cancel a send, and waiting for one could last for ever: it keeps its
  // buffer.
  for (MPI_Request& request : sends_)
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  static_cast<void>(slots_.release());
}

void MpiMailbox::send(int to, const Message& message) {
  if (free_.empty()) reclaim();
  if (free_.empty()) {
    fail(Exit::communication,
         fmt::format("{} messages are on their way and none arrives; has a rank stopped? Run again "
                     "with --resume latest",
                     kMessagesInFlight));
  }
  const int slot = free_.back();
  const auto at = static_cast<std::size_t>(slot);
  slots_[at] = message;
  SIDESTEP_MPI(MPI_Isend(&slots_[at], kBytes, MPI_BYTE, to, kTag, comm_, &sends_[at]));
  free_.pop_back();
}

std::optional<Message> MpiMailbox::receive() {
  int done = 0;
  SIDESTEP_MPI(MPI_Test(&receive_, &done, MPI_STATUS_IGNORE));
  if (done == 0) return std::nullopt;
  const Message message = arrived_;
  SIDESTEP_MPI(MPI_Start(&receive_));
  return message;
}

/// Frees the slots of what has been sent.
void MpiMailbox::reclaim() {
  int count = 0;
  SIDESTEP_MPI(MPI_Testsome(kMessagesInFlight, sends_.data(), &count, finished_.data(),
                            MPI_STATUSES_IGNORE));
  if (count == MPI_UNDEFINED) return;
  free_.insert(free_.end(), finished_.begin(), finished_.begin() + count);
}

}  // namespace sidestep
