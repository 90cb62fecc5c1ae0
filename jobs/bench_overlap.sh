#!/usr/bin/env bash
# How much of the gradient exchange is left over when it overlaps with computing: two hosts made of
# network namespaces on this machine, with a link of a given rate between them. Needs root.
#   jobs/bench_overlap.sh [--rate 1gbit] [--rounds 5] [--steps 10] [--batch 1024] [--out DIR]
# The kinds of overlap take turns in each round; the table holds medians over the rounds of the mean
# exposed time of a step, and their ratio to no overlap. Exits with 77 where it may not make hosts.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/env.sh"
hosts=$here/../tests/hosts/hosts.sh
export SIDESTEP_HOSTS=bench

rate=1gbit rounds=5 steps=10 batch=1024 out=run/overlap-$(date +%Y%m%d-%H%M%S)
while (($#)); do
  case $1 in
    --rate) rate=${2:?} ;;
    --rounds) rounds=${2:?} ;;
    --steps) steps=${2:?} ;;
    --batch) batch=${2:?} ;;
    --out) out=${2:?} ;;
    *) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift 2
done

program=$(find_sidestep)
mkdir -p "$out"
"$hosts" up 2 "$rate"
trap '"$hosts" down' EXIT

for ((round = 1; round <= rounds; ++round)); do
  for overlap in off backward full; do
    echo "round $round of $rounds: overlap $overlap" >&2
    "$hosts" mpirun 1 -n 2 "$program" bench --model mlp --batch "$batch" --overlap "$overlap" \
      --update-thread own --threads 1 --data synthetic:8192 --bench-steps "$steps" --bench-repeats 1 \
      --json "$out/$overlap-$round.json" > "$out/log" 2>&1 || { cat "$out/log" >&2; exit 1; }
  done
done
rm -f "$out/log"

python3 - "$out" "$rate" << 'END'
import json, pathlib, statistics, sys
out, rate = pathlib.Path(sys.argv[1]), sys.argv[2]
def median(overlap, part, key):
    files = sorted(out.glob(f"{overlap}-*.json"))
    return statistics.median(json.loads(file.read_text())[part][key] for file in files)
kinds = ("off", "backward", "full")
exposed = {kind: median(kind, "with_exchange", "exposed_ms") for kind in kinds}
step = {kind: median(kind, "with_exchange", "step_ms") for kind in kinds}
alone = statistics.median(median(kind, "compute_only", "step_ms") for kind in kinds)
print(f"mlp, 2 hosts, {rate} between them; milliseconds a step, medians; compute alone {alone:.1f}")
print(f"{'overlap':<10}{'exposed':>9}{'of off':>8}{'step':>9}{'of off':>8}")
for kind in kinds:
    print(f"{kind:<10}{exposed[kind]:>9.1f}{exposed[kind] / exposed['off']:>8.2f}"
          f"{step[kind]:>9.1f}{step[kind] / step['off']:>8.2f}")
END
