// The check macro of MPI calls and the maker of MPI communicators. For comm/mpi_*.cc only.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>

#include "comm/communicator.h"

namespace sidestep {

/// Fails with Exit::communication, MPI's words and the call, when the code is not MPI_SUCCESS.
void check_mpi(int code, const char* call);
#define SIDESTEP_MPI(call) ::sidestep::check_mpi((call), #call)

/// Duplicates `parent` (collective) and owns the duplicate. No MPI call gets more than `max_count`
/// elements.
std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm parent, std::int64_t max_count);

}  // namespace sidestep
