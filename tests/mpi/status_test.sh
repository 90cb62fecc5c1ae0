#!/usr/bin/env bash
# Runs a command that must end with a given status. usage: status_test.sh STATUS COMMAND...
set -uo pipefail
expected=$1
shift
"$@"
found=$?
echo "status: expected $expected, found $found"
((found == expected))
