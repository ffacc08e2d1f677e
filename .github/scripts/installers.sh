#!/usr/bin/env bash
# installers.sh DIST: `uv tool install` and `pipx install`, where they are here, in homes of their own.
set -euo pipefail
dist=$(cd "${1:?the folder with the wheel}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tried=0
if command -v uv >/dev/null; then
  UV_TOOL_DIR=$work/uv UV_TOOL_BIN_DIR=$work/uvbin uv tool install --quiet "$dist"/*.whl
  "$work/uvbin/specdec" --version
  tried=1
fi
if command -v pipx >/dev/null; then
  PIPX_HOME=$work/pipx PIPX_BIN_DIR=$work/pipxbin PIPX_MAN_DIR=$work/man pipx install --quiet "$dist"/*.whl
  "$work/pipxbin/specdec" --version
  tried=1
fi
[ "$tried" = 1 ] || { printf 'error: neither uv nor pipx is here\nhint: python3 -m pip install uv\n' >&2; exit 1; }
