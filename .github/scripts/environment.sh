#!/usr/bin/env bash
# environment.sh: .venv-ci, a fresh environment with this checkout and what its tests need. PYTHON names the interpreter.
set -euo pipefail
cd "$(dirname "$0")/../.."
"${PYTHON:-python3}" -m venv .venv-ci
.venv-ci/bin/python -m pip install --quiet -e '.[test]'
.venv-ci/bin/specdec --version
