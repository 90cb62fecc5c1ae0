#!/usr/bin/env bash
# Policies where exchange takes longer than compute: hosts made of network namespaces on this machine,
# with slow links between them. Needs root.
#   jobs/bench_comm_bound.sh [--rate 100mbit] [--hosts 2] [--hidden 1024,1024] [--epochs 2] [--seeds 3] [--out DIR]
# Trains an mlp on Fashion-MNIST under each policy with equal samples; the table has accuracy, bytes a
# rank, seconds, and the time to half a point below bsp's accuracy. Two rows belong to SelSync: itself, and plain
# averaging as often as it exchanged. Exits with 77 where it may not make hosts.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/env.sh"
network=$here/../tests/hosts/hosts.sh
export SIDESTEP_HOSTS=slow OMP_NUM_THREADS=1

rate=100mbit hosts=2 hidden=1024,1024 epochs=2 seeds=3 out=run/comm-bound
while (($#)); do
  case $1 in
    --rate) rate=${2:?} ;;
    --hosts) hosts=${2:?} ;;
    --hidden) hidden=${2:?} ;;
    --epochs) epochs=${2:?} ;;
    --seeds) seeds=${2:?} ;;
    --out) out=${2:?} ;;
    *) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift 2
done

program=$(find_sidestep)
mkdir -p "$out"
out=$(cd "$out" && pwd)
"$network" up "$hosts" "$rate"
trap '"$network" down' EXIT

# train NAME SEED OPTIONS ...
train() {
  local name=$1 seed=$2
  shift 2
  [[ -f $out/$name-$seed/summary.json ]] && grep -q '"status": "done"' "$out/$name-$seed/summary.json" && return
  echo "seed $seed of $seeds: $name" >&2
  "$network" mpirun 1 -n "$hosts" "$program" train --replace --out "$out/$name-$seed" --model mlp --hidden "$hidden" \
    --data fashion-mnist --batch 256 --lr 0.05 --epochs "$epochs" --seed "$seed" --threads 1 --eval-every 25steps \
    --checkpoint-every 1000000 --keep 1 "$@" > "$out/log" 2>&1 || { cat "$out/log" >&2; exit 1; }
}

# The steps between two of SelSync's exchanges.
steps_between() {
  python3 - "$out/selsync-$1/metrics.jsonl" << 'END'
import json, sys
rounds = [json.loads(line) for line in open(sys.argv[1])]
print(max(round(rounds[-1]["step"] / len(rounds)), 1))
END
}

for ((seed = 1; seed <= seeds; ++seed)); do
  train bsp "$seed" --policy bsp
  train local "$seed" --policy local
  train diloco "$seed" --policy diloco
  train quorum "$seed" --policy quorum
  train selsync "$seed" --policy selsync
  train averaging "$seed" --policy local --local-state keep --sync-every "$(steps_between "$seed")"
done
rm -f "$out/log"

python3 - "$out" "$rate" "$hosts" "$here" << 'END'
import json, pathlib, statistics, sys
sys.dont_write_bytecode = True
out, rate, hosts = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
sys.path.insert(0, sys.argv[4])
from straggler_table import time_to
def runs(name):
    found = []
    for path in sorted(out.glob(f"{name}-*/metrics.jsonl")):
        seconds, curve = 0, []
        for line in map(json.loads, path.read_text().splitlines()):
            seconds += line["seconds"]
            if line["eval_accuracy"] is not None:
                curve.append([seconds, line["eval_accuracy"]])
        summary = json.loads((path.parent / "summary.json").read_text())
        found.append({"curve": curve, "seconds": seconds, "accuracy": summary["test_accuracy"],
                      "bytes": summary["bytes_exchanged_per_rank"], "rounds": summary["rounds"]})
    return found
names = ("bsp", "local", "diloco", "quorum", "selsync", "averaging")
results = {name: runs(name) for name in names}
target = statistics.mean(r["accuracy"] for r in results["bsp"]) - 0.005
base = statistics.median([t for r in results["bsp"] if (t := time_to(r, target)) is not None] or [float("nan")])
print(f"mlp, {hosts} hosts, {rate} links; {len(results['bsp'])} seeds; target {100 * target:.2f} %")
print(f"{'policy':<11}{'accuracy':>9}{'MB':>9}{'rounds':>8}{'seconds':>9}{'to target':>11}{'bsp is':>8}")
for name, found in results.items():
    times = [t for r in found if (t := time_to(r, target)) is not None]
    reached = statistics.median(times) if len(times) == len(found) else None
    print(f"{name:<11}{100 * statistics.mean(r['accuracy'] for r in found):>9.2f}"
          f"{statistics.median(r['bytes'] for r in found) / 1e6:>9.0f}"
          f"{statistics.median(r['rounds'] for r in found):>8.0f}{statistics.median(r['seconds'] for r in found):>9.1f}"
          + (f"{reached:>11.1f}{base / reached:>7.1f}x" if reached else f"{'not':>11}{'-':>8}"))
END
