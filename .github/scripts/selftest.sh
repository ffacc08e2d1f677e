#!/usr/bin/env bash
# selftest.sh [ARCHITECTURE]: doctor's self-test, then every architecture and, where DEVICE is gpu, every kernel against
# the CPU; with Metal's kernels chosen as for that chip (such as applegpu_g15s).
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${BIN:-.venv-ci/bin} out=${OUT:-artifacts} architecture=${1:-unset}
export TEST_DEVICE="${DEVICE:-cpu}"
mkdir -p "$out"
[ "$architecture" = unset ] || export MLX_METAL_GPU_ARCH="$architecture"
[ "$TEST_DEVICE" = cpu ] || "$bin/python" .github/scripts/probe.py "$out/probe-$architecture.json" --gpu
"$bin/specdec" doctor --selftest | tee "$out/selftest-$architecture.txt"
"$bin/python" -m pytest -n "${WORKERS:-3}" -m 'slow and not full' --junitxml "$out/conformance-$architecture.xml" \
  tests/conformance/test_gpu.py tests/laws/test_conformance.py
