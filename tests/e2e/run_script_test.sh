#!/usr/bin/env bash
# jobs/run.sh with a stand-in for the program: options and exit status come through, and TERM, INT
# and USR1 all reach the ranks as USR1.
# usage: run_script_test.sh ROOT
set -euo pipefail
root=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; cat "$work/log" >&2; exit 1; }

cat > "$work/program" << 'STUB'
#!/usr/bin/env bash
trap 'exit 75' USR1
case $1 in
  status) echo "arguments: $*"; exit "$2" ;;
  wait) touch "$READY.$OMPI_COMM_WORLD_RANK"; while :; do sleep 0.05; done ;;
esac
STUB
chmod +x "$work/program"
export SIDESTEP=$work/program READY=$work/ready

for expected in 0 3; do
  status=0
  timeout 60 "$root/jobs/run.sh" 2 status "$expected" "a b" > "$work/log" 2>&1 || status=$?
  [[ $status == "$expected" ]] || fail "exit status $status, expected $expected"
  grep -qx "arguments: status $expected a b" "$work/log" || fail "the arguments did not arrive"
done
grep -q 'exit status 3: the data' "$work/log" || fail "the status is not put into words"

set -m  # background jobs then do not ignore INT
for signal in TERM INT USR1; do
  rm -f "$READY".*
  "$root/jobs/run.sh" 2 wait > "$work/log" 2>&1 < /dev/null &
  script=$!
  for ((tries = 0; tries < 600; ++tries)); do
    [[ -e $READY.0 && -e $READY.1 ]] && break
    sleep 0.1
  done
  kill "-$signal" "$script"
  status=0
  wait "$script" || status=$?
  [[ $status == 75 ]] || fail "after $signal: exit status $status, expected 75"
done

status=0
"$root/jobs/run.sh" none train > "$work/log" 2>&1 || status=$?
[[ $status == 2 ]] || fail "a wrong number of ranks: exit status $status"
