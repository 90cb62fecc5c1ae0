// The subcommands. Each returns an exit code (0, or 75 when stopped on request) or throws.
#pragma once

#include "app/settings.h"
#include "comm/mpi_job.h"

namespace sidestep {

/// The settings are those of this rank; the first thing each does is agree on them.
int run_train(Settings& settings, MpiJob& job);
int run_eval(Settings& settings, MpiJob& job);
int run_bench(Settings& settings, MpiJob& job);
/// Without MPI.
int run_inspect(const Settings& settings);

}  // namespace sidestep
