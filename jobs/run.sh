#!/usr/bin/env bash
# Runs the program under mpirun on this machine, with the flags that fit it:
#   jobs/run.sh RANKS train --model lenet --data fashion-mnist --out runs/a
# The exit status is the program's; 75 means "stopped on request: go on with --resume latest".
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

if ! [[ ${1:-} =~ ^[1-9][0-9]*$ ]] || (($# < 2)); then
  echo "usage: jobs/run.sh RANKS train|eval|inspect|bench [options]" >&2
  exit 2
fi
ranks=$1
shift
program=$(find_sidestep)
mpirun_flags "$ranks"

# In the background and in a process group of its own, so that this shell can turn every signal,
# Ctrl-C included, into USR1: the ranks then finish the step, save and leave with 75. TERM or INT
# sent to mpirun itself would kill them within a second.
set -m
mpirun "${MPIRUN_FLAGS[@]}" "$program" "$@" < /dev/null &
mpirun_pid=$!
signalled=yes
pass_on() {
  signalled=yes
  kill -USR1 "$mpirun_pid" 2> /dev/null || true
}
trap pass_on USR1 USR2 TERM INT
status=0
while [[ $signalled == yes ]]; do  # wait also returns when a trap ran
  signalled=no
  status=0
  wait "$mpirun_pid" || status=$?
done
explain_status "$status"
exit "$status"
