#!/usr/bin/env bash
# audit.sh [ARCHITECTURE]: is the demo pair, packed to 4 bits, lossless here at K 1, 4 and 8?
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${BIN:-.venv-ci/bin} out=${OUT:-artifacts} architecture=${1:-unset}
mkdir -p "$out"
[ "$architecture" = unset ] || export MLX_METAL_GPU_ARCH="$architecture"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$bin/python" .github/scripts/pack.py "$work" "${DTYPE:-bfloat16}"
"$bin/specdec" audit --target "$work/target" --draft "$work/draft" -k 1,4,8 -n "${TOKENS:-64}" ${PROMPTS:+--prompts "$PROMPTS"} --json \
  >"$out/audit-$architecture.json" || { code=$?; cat "$out/audit-$architecture.json"; exit "$code"; }
