#!/usr/bin/env bash
# probe.sh [--gpu]: what this machine computes on, into OUT/probe.json; --gpu fails where mlx has no GPU.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${BIN:-.venv-ci/bin} out=${OUT:-artifacts}
mkdir -p "$out"
"$bin/python" .github/scripts/probe.py "$out/probe.json" ${1+"$@"}
"$bin/specdec" doctor
