# Settings for running Sidestep under Open MPI on one machine. To be sourced by bash:
#   source jobs/env.sh; mpirun_flags 4; mpirun "${MPIRUN_FLAGS[@]}" sidestep train ...
# shellcheck shell=bash

# Open MPI refuses to run as root (as in containers) unless told twice.
if ((EUID == 0)); then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# Idle OpenMP threads sleep instead of spinning on the core that another thread needs.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-PASSIVE}"

# Physical cores this process may use (Open MPI counts these, not hardware threads, as slots).
usable_cores() {
  local cpus cores
  cpus=$(nproc)
  cores=$(lscpu -p=CORE,SOCKET 2> /dev/null | grep -v '^#' | sort -u | wc -l)
  echo $((cores > 0 && cores < cpus ? cores : cpus))
}

# mpirun_flags RANKS sets the array MPIRUN_FLAGS. The default binding would put all threads of a
# rank on one core. Inside a batch allocation the scheduler's slots are left alone.
mpirun_flags() {
  MPIRUN_FLAGS=(-n "$1" --bind-to none --mca mpi_yield_when_idle 1)
  if [[ -z ${SLURM_JOB_ID:-}${PBS_JOBID:-}${LSB_JOBID:-} ]] && (($1 > $(usable_cores))); then
    MPIRUN_FLAGS+=(--oversubscribe)
  fi
}

# Puts the exit status of mpirun into words on stderr: explain_status STATUS
explain_status() {
  local words
  case $1 in
    0) return ;;
    1) words="a fault of the program: please report it" ;;
    2) words="a setting is wrong" ;;
    3) words="the data cannot be used" ;;
    4) words="a checkpoint or the output folder cannot be used" ;;
    5) words="communication between the ranks failed" ;;
    6) words="a number was not finite" ;;
    7) words="the device failed" ;;
    75) words="stopped on request, checkpoint saved: go on with --resume latest" ;;
    134 | 136 | 139) words="a rank crashed (signal $(($1 - 128)))" ;;
    137) words="a rank was killed (often: out of memory, or the job was ended)" ;;
    *) words="see the messages above" ;;
  esac
  echo "exit status $1: $words" >&2
}

# Path of the program: $SIDESTEP, else beside the installed scripts, else the release build.
find_sidestep() {
  local here candidate
  here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
  for candidate in "${SIDESTEP:-}" "$here/../../../bin/sidestep" "$here/../build/release/sidestep"; do
    if [[ -n $candidate && -x $candidate ]]; then
      echo "$(cd "$(dirname "$candidate")" && pwd)/$(basename "$candidate")"
      return 0
    fi
  done
  echo "no sidestep program found: run jobs/quickstart.sh first, or set SIDESTEP=PATH" >&2
  return 2
}
