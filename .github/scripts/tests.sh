#!/usr/bin/env bash
# tests.sh cpu|gpu [PYTEST-OPTION...]: the default tier on that device, against the list of known failures.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${BIN:-.venv-ci/bin} out=${OUT:-artifacts}
export TEST_DEVICE=${1:?cpu or gpu}
shift
mkdir -p "$out"
results=$out/tests-$TEST_DEVICE.xml
code=0
"$bin/python" -m pytest -n "${WORKERS:-3}" --junitxml "$results" ${1+"$@"} || code=$?
# 0: all passed. 1: some failed, which the list judges. Anything else is no result.
[ "$code" -le 1 ] || exit "$code"
"$bin/python" .github/scripts/known_failures.py "$results" ".github/known-failures-$TEST_DEVICE.txt"
