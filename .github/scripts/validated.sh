#!/usr/bin/env bash
# validated.sh: the self-test and every architecture under Metal's own validation, which aborts at an invalid call.
set -euo pipefail
export METAL_DEVICE_WRAPPER_TYPE=1 METAL_DEBUG_ERROR_MODE=0
exec "$(dirname "$0")/selftest.sh" unset
