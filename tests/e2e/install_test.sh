#!/usr/bin/env bash
# Installs the program, moves the folder and runs it from there, by path and through its modulefile.
# usage: install_test.sh BUILD_DIR WORK_DIR VERSION
set -euo pipefail
build=$1 work=$2 version=$3
source "$(dirname "${BASH_SOURCE[0]}")/../../jobs/env.sh"

rm -rf "$work"
cmake --install "$build" --prefix "$work/first" > /dev/null
mv "$work/first" "$work/moved here"  # a space, too
prefix="$work/moved here"

fail() { echo "FAILED: $*" >&2; exit 1; }
if grep -rIlF "$work/first" "$prefix"; then fail "the files above hold the first place's path"; fi

out=$("$prefix/bin/sidestep" --version) || fail "bin/sidestep --version exits with $?"
grep -qF "$version" <<< "$out" || fail "--version does not print $version: $out"

# The scripts find the program beside them, and the program's status comes through mpirun.
scripts="$prefix/share/sidestep/jobs"
# shellcheck disable=SC1091  # the installed copy
[[ $(unset SIDESTEP; source "$scripts/env.sh"; find_sidestep) == "$prefix/bin/sidestep" ]] ||
  fail "share/sidestep/jobs/env.sh does not find the installed program"
status=0
"$scripts/run.sh" 2 train --no-such-option > "$work/log" 2>&1 || status=$?
((status == 2)) || { cat "$work/log"; fail "run.sh: exit status $status of a wrong option, expected 2"; }

if ! modulecmd=$(command -v modulecmd); then
  echo "skipped: the modulefile (modulecmd, package environment-modules, is not installed)"
  exit 77
fi
settings=$(MODULEPATH="$prefix/share/sidestep/modulefiles" "$modulecmd" bash load "sidestep/$version")
[[ -n $settings ]] || fail "the modulefile sets nothing"
found=$(eval "$settings" > /dev/null && command -v sidestep && echo "$SIDESTEP_ROOT")
[[ $found == "$prefix/bin/sidestep"$'\n'"$prefix" ]] || fail "module load finds $found, not $prefix/bin/sidestep"
rm -rf "$work"
echo "installed, moved, run and loaded"
