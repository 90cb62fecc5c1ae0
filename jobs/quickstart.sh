#!/usr/bin/env bash
# From a clone to a trained network: installs what is missing, builds, trains LeNet-5 on
# Fashion-MNIST with mpirun, prints the test accuracy and the run folder.
#   jobs/quickstart.sh [--ranks 2] [--epochs 8] [further options of `sidestep train`]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source jobs/env.sh

ranks=2
epochs=8
options=()
while (($#)); do
  case $1 in
    --ranks | --epochs)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || { echo "quickstart.sh: $1 needs a whole number from 1" >&2; exit 2; }
      if [[ $1 == --ranks ]]; then ranks=$2; else epochs=$2; fi
      shift
      ;;
    -h | --help) sed -n '2,4s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) options+=("$1") ;;
  esac
  shift
done

jobs/deps.sh
echo "building (log: build/release/build.log)"
mkdir -p build/release
if ! { cmake -S . -B build/release -G Ninja -DCMAKE_BUILD_TYPE=Release -DSIDESTEP_TESTS=OFF &&
  cmake --build build/release -j "$(nproc)"; } > build/release/build.log 2>&1; then
  tail -n 40 build/release/build.log >&2
  echo "quickstart.sh: the build failed" >&2
  exit 1
fi

out=run/quickstart-$(date +%Y%m%d-%H%M%S)
SIDESTEP=build/release/sidestep jobs/run.sh "$ranks" train --model lenet --data fashion-mnist \
  --out "$out" --epochs "$epochs" --batch 64 --lr 0.02 --weight-decay 5e-4 --schedule cosine "${options[@]}"

accuracy=$(sed -n 's/.*"test_accuracy": *\([0-9.][0-9.e-]*\).*/\1/p' "$out/summary.json")
echo
echo "test accuracy: $(awk -v a="${accuracy:?not in $out/summary.json}" 'BEGIN { printf "%.2f %%", 100 * a }')"
echo "run folder:    $PWD/$out"
