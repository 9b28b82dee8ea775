#!/usr/bin/env bash
# Runs the program that ../run.sh has configured against a real Redis and real packets.
#   run.sh [BUILD FOLDER]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=${1:-build/vad-dataplane}/none
ninja -C "$build" src/vad-dataplane
PYTHONPATH=$here VOICE_DATAPLANE_BUILD=$(realpath "$build/src") pytest -q -p no:cacheprovider "$here"
