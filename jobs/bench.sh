#!/usr/bin/env bash
# Samples per second of lenet and mlp on one and two ranks, compute only and with exchange; beside
# PyTorch's CPU build on one thread where this Python has it. All take turns, the table holds medians.
#   jobs/bench.sh [--out DIR] [--rounds 5] [--steps 100] [--batch 128] [--ranks "1 2"]
# The batch is that of each rank. Results also go to DIR/bench.json (default: run/bench-<time>).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/env.sh"

out=run/bench-$(date +%Y%m%d-%H%M%S) rounds=5 steps=100 batch=128 rank_counts="1 2"
while (($#)); do
  case $1 in
    --out) out=${2:?} ;;
    --rounds) rounds=${2:?} ;;
    --steps) steps=${2:?} ;;
    --batch) batch=${2:?} ;;
    --ranks) rank_counts=${2:?} ;;
    *) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift 2
done

program=$(find_sidestep)
python=python3
if [[ -x /usr/bin/python3 ]]; then python=/usr/bin/python3; fi
torch=no
if "$python" -c 'import torch' 2> /dev/null; then torch=yes; fi
mkdir -p "$out"
if ! log=$(mktemp "$out/log.XXXXXX"); then exit 4; fi

for ((round = 1; round <= rounds; ++round)); do
  for model in lenet mlp; do
    echo "round $round of $rounds: $model" >&2
    if [[ $torch == yes ]]; then
      "$python" "$here/torch_baseline.py" "$model" --batch "$batch" --steps "$steps" \
        > "$out/torch-$model-$round.json"
    fi
    for ranks in $rank_counts; do
      mpirun_flags "$ranks"
      mpirun "${MPIRUN_FLAGS[@]}" "$program" bench --model "$model" --batch $((batch * ranks)) \
        --data synthetic:4096 --threads 1 --bench-steps "$steps" --bench-repeats 1 \
        --json "$out/$model-$ranks-$round.json" > "$log" 2>&1 || { cat "$log" >&2; exit 1; }
    done
  done
done
rm -f "$log"
"$python" "$here/bench_table.py" "$out"
