#!/usr/bin/env bash
# Runs the program that ../run.sh has built against a real Redis and real packets, as root.
#   run.sh BUILD PYTEST-ARGUMENT...
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=$1
shift
PYTHONPATH=$here:$here/../../../runtime/src VOICE_DATAPLANE_BUILD=$(realpath "$build/src") \
  pytest -q -p no:cacheprovider -p scene --confcutdir="$here" "$@"
