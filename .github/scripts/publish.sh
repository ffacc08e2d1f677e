#!/usr/bin/env bash
# publish.sh TAG DIST: the release on GitHub, with every file of DIST, and the notes and formula of OUT.
set -euo pipefail
tag=${1:?the tag} dist=${2:?the folder with the files} out=${OUT:-artifacts}
gh release create "$tag" "$dist"/* "$out/specdec.rb" --verify-tag --title "specdec ${tag#v}" --notes-file "$out/notes.md"
