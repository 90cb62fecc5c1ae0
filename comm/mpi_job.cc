#include "comm/mpi_job.h"

#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>

#include "comm/mpi_check.h"
#include "core/base/error.h"

namespace sidestep {
namespace {

#ifdef OPEN_MPI
std::string implementation() {
  return fmt::format("Open MPI {}.{}.{}", OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION,
                     OMPI_RELEASE_VERSION);
}
#else
std::string implementation() { return "not Open MPI"; }
#endif

std::string host_name() {
  char name[256] = "";
  if (gethostname(name, sizeof(name) - 1) != 0) return "unknown";
  const std::string full = name;
  return full.substr(0, full.find('.'));
}

}  // namespace

MpiJob::MpiJob(int& argc, char**& argv) : host_(host_name()) {
  // For a non-blocking all-reduce in place, Open MPI 4.1 takes a binomial tree, which uses a link
  // in one direction at a time and loads the root with every message. Rabenseifner's algorithm
  // needs half the time between two hosts and less with more ranks. A choice of the user's comes
  // first.
  setenv("OMPI_MCA_coll_libnbc_iallreduce_algorithm", "3", 0);
  int provided = MPI_THREAD_SINGLE;
  SIDESTEP_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided));
  SIDESTEP_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  if (provided < MPI_THREAD_SERIALIZED) {
    fail(Exit::communication,
         fmt::format("MPI thread level: expected SERIALIZED ({}) or more, found {}; use an MPI "
                     "library built with thread support",
                     MPI_THREAD_SERIALIZED, provided));
  }
  SIDESTEP_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
  SIDESTEP_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size_));
  MPI_Comm local = MPI_COMM_NULL;
  SIDESTEP_MPI(
      MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &local));
  SIDESTEP_MPI(MPI_Comm_rank(local, &local_rank_));
  SIDESTEP_MPI(MPI_Comm_size(local, &local_size_));
  SIDESTEP_MPI(MPI_Comm_free(&local));
}

MpiJob::~MpiJob() {
  // Finalize waits for all ranks: one that is on its way out with an error must not enter it.
  if (std::uncaught_exceptions() > 0) abort(static_cast<int>(Exit::internal));
  MPI_Finalize();
}

std::unique_ptr<Communicator> MpiJob::world(std::int64_t max_count) {
  return make_mpi_communicator(MPI_COMM_WORLD, max_count);
}

void MpiJob::abort(int exit_code) noexcept {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

std::string MpiJob::compiled_version() {
  return fmt::format("MPI {}.{}, {}", MPI_VERSION, MPI_SUBVERSION, implementation());
}

std::string MpiJob::loaded_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  SIDESTEP_MPI(MPI_Get_library_version(text, &length));
  const std::string full(text, static_cast<std::size_t>(length));
  return full.substr(0, full.find_first_of(",\n"));
}

}  // namespace sidestep
