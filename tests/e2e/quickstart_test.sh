#!/usr/bin/env bash
# quickstart_test.sh SOURCE SCRATCH: the quickstart from a fresh clone must reach 90 % test accuracy.
set -euo pipefail
source_folder=$1 scratch=$2
rm -rf "$scratch"
git clone --quiet "$source_folder" "$scratch"
cd "$scratch"
jobs/quickstart.sh | tee quickstart.log
accuracy=$(sed -n 's/^test accuracy: *\([0-9.]*\) %$/\1/p' quickstart.log)
folder=$(sed -n 's/^run folder: *//p' quickstart.log)
[[ -f $folder/summary.json ]] || { echo "no summary in the run folder '$folder'"; exit 1; }
awk -v a="${accuracy:-0}" 'BEGIN { exit !(a >= 90) }' || { echo "accuracy ${accuracy:-none} is below 90 %"; exit 1; }
