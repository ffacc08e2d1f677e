#!/usr/bin/env bash
# publish.sh TAG DIST: the release on GitHub, with the notes of OUT/notes.md and every file of DIST.
set -euo pipefail
tag=${1:?the tag} dist=${2:?the folder with the files} out=${OUT:-artifacts}
gh release create "$tag" "$dist"/* --verify-tag --title "specdec ${tag#v}" --notes-file "$out/notes.md"
