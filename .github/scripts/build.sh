#!/usr/bin/env bash
# build.sh [FOLDER]: sdist and wheel, built from two copies of the tracked files, into FOLDER (dist) if their bytes agree.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${BIN:-.venv-ci/bin} dist=${1:-dist}
mkdir -p "$dist"
dist=$(cd "$dist" && pwd)
python=$(cd "$bin" && pwd)/python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The second copy has another path, other permissions and other times.
for copy in a another; do
  mkdir -p "$work/$copy/tree"
  git ls-files -z | COPYFILE_DISABLE=1 tar --null -cf - -T - | (umask 077 && tar -xmf - -C "$work/$copy/tree")
done
find "$work/another/tree" -type f -exec chmod g+w {} + -exec touch -t 203001010000 {} +
for copy in a another; do
  (cd "$work/$copy/tree" && "$python" -m build --no-isolation --outdir ../dist . >/dev/null)
done
for file in "$work"/a/dist/*; do
  name=$(basename "$file")
  cmp "$file" "$work/another/dist/$name" || { printf 'error: two builds of %s differ\nhint: diffoscope tells where\n' "$name" >&2; exit 1; }
  cp "$file" "$dist/"
  printf '%s\t%s bytes\n' "$name" "$(wc -c <"$file" | tr -d ' ')"
done
