#!/usr/bin/env bash
# The test command: installs what is missing, builds every tree and runs all tests through CTest.
#   jobs/test.sh              everything (what CI runs)
#   jobs/test.sh --quick      only the ordinary build: labels unit, mpi, e2e
#   jobs/test.sh --long       the tests labelled long; last results are kept in jobs/long-results.md
#   jobs/test.sh --label L    only this label (unit, mpi, e2e, asan, tsan, cuda-build, long)
#   --no-deps                 install nothing
# Ends with "N passed, N failed, N skipped" and fails when anything failed or a label was empty.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source jobs/env.sh

# Tests that make sense under ThreadSanitizer: streams, reducer, engine, storage, and a seeded race
# that it must report. No MPI and no OpenMP in them.
tsan_targets=(test_base test_device test_comm test_io_data tsan_race)

labels=(unit mpi e2e asan tsan cuda-build)
install=yes
while (($#)); do
  case $1 in
    --quick) labels=(unit mpi e2e) ;;
    --long) labels=(long) ;;
    --label) labels=("${2:?--label needs a name}"); shift ;;
    --no-deps) install=no ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift
done

[[ $install == no ]] || jobs/deps.sh --with-tests
python=python3
if [[ -x /usr/bin/python3 ]]; then python=/usr/bin/python3; fi  # the one that apt's h5py belongs to
jobs=$(nproc)
export CTEST_OUTPUT_ON_FAILURE=1 GTEST_COLOR=no
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
# Objects compiled for one clone serve the next, wherever it lies.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
results=build/test-results
rm -rf "$results"
mkdir -p "$results"
rows=$results/rows.tsv  # see test_report.py
started=$SECONDS

wanted() { [[ " ${labels[*]} " == *" $1 "* ]]; }

# build TREE TARGETS CMAKE-ARGS... (TARGETS: a function that prints their names); sets build_seconds
build() {
  local tree=build/$1 targets=$2 begin=$SECONDS status=0
  shift 2
  echo "== building $tree"
  cmake -S . -B "$tree" -G Ninja -DSIDESTEP_WERROR=ON "$@" > "$tree.configure.log" 2>&1 || status=$?
  if ((status == 0)); then
    # shellcheck disable=SC2046  # one word a target
    cmake --build "$tree" -j "$jobs" --target $("$targets" "$tree") || status=$?
  else
    cat "$tree.configure.log"
  fi
  build_seconds=$((SECONDS - begin))
  return "$status"
}
all() { echo all; }
test_targets() { ninja -C "$1" -t targets all | sed -n 's/^\(test_[a-z0-9_]*\): phony$/\1/p' | sort -u; }
unit_targets() { test_targets "$1" | grep -v '^test_mpi' || true; }
race_targets() { echo "${tsan_targets[@]}"; }

# row LABEL BUDGET BUILD-SECONDS TEST-SECONDS STATE JUNIT-FILE CTEST-STATUS
row() { printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$@" >> "$rows"; }

# run_label LABEL BUDGET TREE REGEX PARALLEL [WRAPPER...]
run_label() {
  local label=$1 budget=$2 tree=build/$3 regex=$4 parallel=$5 status=0 junit begin=$SECONDS
  shift 5
  junit=$PWD/$results/$label.xml
  echo "== label $label"
  "$@" ctest --test-dir "$tree" -L "$regex" -j "$parallel" --no-tests=error \
    --output-junit "$junit" || status=$?
  row "$label" "$budget" "${build_seconds:-0}" $((SECONDS - begin)) ran "$junit" "$status"
}

# Sanitizers want a predictable address space: newer kernels randomise more than g++ 12's expect.
plain_addresses=()
if setarch "$(uname -m)" -R true 2> /dev/null; then
  plain_addresses=(setarch "$(uname -m)" -R)
fi

if wanted unit || wanted mpi || wanted e2e || wanted long; then
  if build test all; then
    echo "build/test took $build_seconds s"
    build_seconds=0
    if wanted unit; then run_label unit 5 test '^unit$' "$jobs"; fi
    # Several ranks at once are already more than the cores: one test at a time.
    if wanted mpi; then run_label mpi 8 test '^mpi$' 1; fi
    if wanted e2e; then run_label e2e 8 test '^e2e$' 1; fi
    if wanted long; then run_label long 0 test '^long$' 1; fi
  else
    row "${labels[0]}" 0 "$build_seconds" 0 build-failed "" 1
  fi
fi

sanitized=(-DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS_DEBUG=-O1")
if wanted asan; then
  if build asan unit_targets "${sanitized[@]}" -DSIDESTEP_SANITIZE=address; then
    export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
    export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
    export LSAN_OPTIONS=suppressions=$PWD/tests/lint/lsan.supp:print_suppressions=0
    run_label asan 10 asan '^unit$' "$jobs" "${plain_addresses[@]}"
  else
    row asan 10 "$build_seconds" 0 build-failed "" 1
  fi
fi

if wanted tsan; then
  if build tsan race_targets "${sanitized[@]}" -DSIDESTEP_SANITIZE=thread; then
    export TSAN_OPTIONS=suppressions=$PWD/tests/lint/tsan.supp:second_deadlock_stack=1
    run_label tsan 8 tsan '^(unit|tsan)$' "$jobs" "${plain_addresses[@]}"
  else
    row tsan 8 "$build_seconds" 0 build-failed "" 1
  fi
fi

if wanted cuda-build; then
  nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2> /dev/null || true)
  if [[ -z $nvcc ]]; then
    row cuda-build 15 0 0 "skipped: no nvcc on this machine" "" 0
  elif build cuda all -DSIDESTEP_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=90 "-DCMAKE_CUDA_COMPILER=$nvcc"; then
    # Where there is no GPU the same tests show that the program then runs on the CPU.
    run_label cuda-build 15 cuda '^(unit|cuda)$' "$jobs"
  else
    row cuda-build 15 "$build_seconds" 0 build-failed "" 1
  fi
fi

echo
echo "all of it took $(((SECONDS - started + 59) / 60)) min"
report=("$python" jobs/test_report.py "$rows")
if wanted long; then
  commit=$(git describe --always --dirty 2> /dev/null || echo unknown)
  report+=(--long-table jobs/long-results.md --commit "$commit")
fi
"${report[@]}"
