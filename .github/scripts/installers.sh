#!/usr/bin/env bash
# installers.sh DIST: `uv tool install`, and `pipx install` where pipx is here, in homes of their own.
set -euo pipefail
cd "$(dirname "$0")/../.."
dist=$(cd "${1:?the folder with the wheel}" && pwd)
bin=$(cd "${BIN:-.venv-ci/bin}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
UV_TOOL_DIR=$work/uv UV_TOOL_BIN_DIR=$work/uvbin "$bin/uv" tool install --quiet --python "$bin/python" "$dist"/*.whl
"$work/uvbin/specdec" --version
if command -v pipx >/dev/null; then
  export PIPX_HOME=$work/pipx PIPX_BIN_DIR=$work/pipxbin PIPX_MAN_DIR=$work/man
  pipx install --python "$bin/python" "$dist"/*.whl
  "$work/pipxbin/specdec" --version
fi
