#!/usr/bin/env bash
# nightly.sh [TARGET DRAFT]: a small real pair: 200 tokens, an audit, and one seed at temperature 0.7 for every K.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${BIN:-.venv-ci/bin} out=${OUT:-artifacts} tokens=${TOKENS:-200}
target=${1:-mlx-community/Qwen3-1.7B-4bit} draft=${2:-mlx-community/Qwen3-0.6B-4bit}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -d "$target" ] || "$bin/specdec" pull --target "$target" --draft "$draft"
set -- --target "$target" --draft "$draft"
"$bin/specdec" run "$@" -n "$tokens" --trace "$out/nightly.jsonl" 'Explain how a hash table works, with an example in Python.'
for seed in 1 2 3; do
  for k in 0 3; do "$bin/specdec" run "$@" -q -n "$tokens" --temp 0.7 --seed "$seed" -k "$k" 'Tell a story.' >"$work/$seed-$k"; done
  cmp "$work/$seed-0" "$work/$seed-3" || printf 'seed %s: another text at K 3: see the audit for its near-ties\n' "$seed"
done
"$bin/specdec" audit "$@" -k 1,4,8 ${PROMPTS:+--prompts "$PROMPTS"} --json >"$out/audit-nightly.json"
