#!/usr/bin/env bash
# selftest.sh [ARCHITECTURE]: doctor's self-test, with Metal's kernels chosen as for that chip (such as applegpu_g15s).
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${BIN:-.venv-ci/bin} out=${OUT:-artifacts} architecture=${1:-unset}
mkdir -p "$out"
[ "$architecture" = unset ] || export MLX_METAL_GPU_ARCH="$architecture"
set -- doctor --selftest
if [ "${DEVICE:-cpu}" = gpu ]; then
  "$bin/python" .github/scripts/probe.py "$out/probe-$architecture.json" --gpu
  set -- "$@" --device gpu
fi
"$bin/specdec" "$@" | tee "$out/selftest-$architecture.txt"
