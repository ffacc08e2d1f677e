#!/usr/bin/env bash
# wheel.sh DIST PYTHON...: the wheel of DIST in an empty environment of each interpreter: it answers, and nothing is missing.
set -euo pipefail
dist=$(cd "${1:?the folder with the wheel}" && pwd)
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
for python in "$@"; do
  "$python" -m venv "$work/env"
  "$work/env/bin/python" -m pip install --quiet "$dist"/*.whl
  "$work/env/bin/python" -m pip check
  "$work/env/bin/python" --version
  "$work/env/bin/specdec" --version
  "$work/env/bin/specdec" run --raw -q -n 8 'def read_lines(path):'
  _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION=1 "$work/env/bin/specdec" --show-completion zsh | grep -q '^#compdef specdec'
  rm -rf "$work/env"
done
