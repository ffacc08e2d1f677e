#!/usr/bin/env bash
# formula.sh DIST HOMEPAGE URL: OUT/specdec.rb, a Homebrew formula of the sdist in DIST, which will be found below URL.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${BIN:-.venv-ci/bin} out=${OUT:-artifacts}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
set -- "$@" "$(echo "${1:?the folder with the sdist}"/*.tar.gz)"
# What a Mac installs, and what builds the sdist there, each with its address and checksum.
mkdir "$work/sdist"
tar -xzf "$4" -C "$work/sdist" --strip-components 1
printf 'hatchling>=1.27\n' >"$work/build.in"
PATH="$bin:$PATH" uv pip compile --quiet --no-config --universal --python-version 3.13 --format pylock.toml \
  --output-file "$work/pylock.toml" "$work/sdist/pyproject.toml" "$work/build.in"
"$bin/python" .github/scripts/formula.py "$4" "$work/pylock.toml" "${2:?the homepage}" "${3:?the address}" >"$out/specdec.rb"
if command -v ruby >/dev/null; then ruby -c "$out/specdec.rb"; fi
