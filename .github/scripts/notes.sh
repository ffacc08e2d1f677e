#!/usr/bin/env bash
# notes.sh TAG: OUT/notes.md out of the changelog; fails where tag, version and changelog disagree.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${OUT:-artifacts}
mkdir -p "$out"
"${PYTHON:-python3}" .github/scripts/release.py "${1:?the tag}" >"$out/notes.md"
cat "$out/notes.md"
