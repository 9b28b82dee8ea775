#!/usr/bin/env bash
# Runs the program built by ../run.sh against a real Redis and real packets, as root.
#   run.sh BUILD PYTEST-ARGUMENT...
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=$1
shift
PYTHONPATH=$here:$here/../../../runtime/src:$here/../../../whisper-engine/src VOICE_DATAPLANE_BUILD=$(realpath "$build/src") \
  pytest -q -p no:cacheprovider -p scene --confcutdir="$here" "$@"
