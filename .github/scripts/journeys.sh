#!/usr/bin/env bash
# journeys.sh: what a person does, once: run, seeds, a schema, the hybrid pair, a server, a chat, a report, a bench.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${BIN:-.venv-ci/bin} out=${OUT:-artifacts} budget=${BUDGET:-3m}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say() { printf '+ %s\n' "$1"; }
run() { "$bin/specdec" run --raw -q "$@"; }

say "the README's own command"
command=$(sed -n 's/^python3 -m venv .* && .*\/\(specdec run .*\)$/\1/p' README.md)
[ -n "$command" ] || { printf 'error: README.md has no line that runs specdec\nhint: see tests/repository/test_documents.py\n' >&2; exit 1; }
PATH="$bin:$PATH" bash -euo pipefail -c "$command --trace $work/run.jsonl"
"$bin/specdec" replay "$work/run.jsonl" --svg "$out/panel.svg" >/dev/null

say "one seed, one text, for every K"
for k in 0 1 3; do run --seed 7 --temp 0.8 -n 48 -k "$k" 'def read_lines(path):' >"$work/seed-$k"; done
cmp "$work/seed-0" "$work/seed-1"
cmp "$work/seed-0" "$work/seed-3"

say "output that keeps its shape"
answer=$(run -n 24 -k 4 --schema '{"enum":["red","green"]}' 'A colour: ')
case $answer in '"red"' | '"green"') ;; *) printf 'error: the schema gave %s\nhint: red or green was asked for\n' "$answer" >&2; exit 1 ;; esac

say "recurrent layers and a head of their own"
for k in 0 2; do run -p demo-hybrid -n 48 -k "$k" --temp 0 'def read_lines(path):' >"$work/hybrid-$k"; done
cmp "$work/hybrid-0" "$work/hybrid-2"

say "every protocol, and a restart"
"$bin/python" .github/scripts/serve.py "$bin/specdec" "$work/kept"

say "a chat that is stopped and goes on"
"$bin/python" .github/scripts/chat.py "$bin/specdec"

say "the report"
"$bin/specdec" doctor --report "$out/mac.json" --pair demo --time-budget "$budget" --yes
say "a bench; its times are not judged"
"$bin/specdec" bench -p demo --time-budget "$budget" --json >"$out/bench.json"
