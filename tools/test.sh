#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests that need no GPU. Arguments go to ctest.
set -euo pipefail
cd "$(dirname "$0")/.."

bash tools/build.sh build all
exec ctest --test-dir build -L cpu --output-on-failure --no-tests=error --no-label-summary "$@"
