#!/usr/bin/env bash
# Policies against stragglers: throughput as a share of ideal, accuracy, detection, for the scenarios
# S0 to S9 (README, "Which policy for which cluster"). Compute times are emulated by sleeping, so that
# many ranks fit on few cores; a cell whose ranks need more than half of the cores is marked invalid.
#   jobs/straggler_suite.sh [--form short|full|overhead] [--out DIR] [--ranks "4 8"] [--policies "bsp quorum"]
#                           [--scenarios "S1 S5"] [--only throughput|accuracy] [--steps N] [--step-ms 100]
#                           [--seeds 3] [--pairs 9] [--accuracy-epochs 2] [--accuracy-step-ms 40]
# short: about 10 minutes; full: hours; overhead: pairs of bsp and each policy without delays. What DIR/results
# holds already with the same settings is not run again (default: run/straggler-suite). The table: DIR/table.md
# and DIR/table.json.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/env.sh"

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,11s/^# \{0,1\}//p' "$0"
  exit 0
fi
SIDESTEP=$(find_sidestep)
export SIDESTEP OMP_NUM_THREADS=1
python=python3
if [[ -x /usr/bin/python3 ]]; then python=/usr/bin/python3; fi
exec "$python" "$here/straggler_suite.py" "$@"
