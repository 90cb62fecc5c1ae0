// How an error ends the job: one line for the whole job, first cause first, the same code whichever
// rank met it.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/base/error.h"

namespace sidestep {

/// A failure that every rank knows of: rank 0 says it, all finalize and return its code.
class AgreedError final : public Error {
 public:
  using Error::Error;
};

/// Runs `phase` on every rank, then lets the ranks tell each other how it went; if any failed, all
/// throw the same AgreedError (code of the lowest failing rank; its message, and those of others
/// that differ, each with its ranks). For phases without communication of their own: options,
/// opening data and files.
void together(Communicator& comm, const std::function<void()>& phase);

/// "rank 3", "ranks 0-2,5"; ascending.
std::string rank_list(const std::vector<int>& ranks);

/// Line and code of any exception; unknown ones become Exit::internal with a request to report.
struct FailureText {
  int code = 1;
  std::string line;
  bool agreed = false;
};
FailureText describe(const std::exception_ptr& failure);

/// Says the failure of this rank and ends the job for all ranks with its code. In a job of several
/// ranks it does not return (MPI's abort): call it where the failure is caught, before objects that
/// wait for other ranks are destroyed. Agreed failures and one-rank jobs: returns the exit code.
int end_job(const std::exception_ptr& failure, int rank, int ranks,
            const std::function<void(int)>& abort);

}  // namespace sidestep
