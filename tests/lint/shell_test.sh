#!/usr/bin/env bash
# Runs shellcheck over every script of the tree, and shows that it reports a planted fault.
# usage: shell_test.sh ROOT
set -euo pipefail
cd "$1"
if ! command -v shellcheck > /dev/null; then
  echo "skipped: shellcheck is not installed (jobs/deps.sh --with-tests)"
  exit 77
fi
check=(shellcheck --external-sources --source-path=SCRIPTDIR --severity=style --exclude=SC2317)
# shellcheck disable=SC2016  # the planted fault is meant to stay unexpanded
if printf '#!/bin/bash\nrm -rf $1\n' | "${check[@]}" - > /dev/null; then
  echo "shellcheck did not report an unquoted variable" >&2
  exit 1
fi
mapfile -t scripts < <(grep -rlE '^#!.*\b(ba)?sh$|^# shellcheck shell=' jobs tests .ci --include='*.sh' --include=run)
echo "${#scripts[@]} scripts"
((${#scripts[@]} >= 5))
"${check[@]}" "${scripts[@]}"
