#!/usr/bin/env bash
# Sends audio through the program of a built image, on veth pairs in network namespaces, with the end-to-end tests.
#   drive.sh ROOT CAPABILITY,... COMMAND...
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
export PATH=$here/../../../.venv/bin:$PATH
# The tests pass paths in this folder to the program: they must be valid inside and outside of the image.
work=$(mktemp -d /tmp/voice-smoke-XXXXXX)
trap 'rm -rf "$work"' EXIT

# The tests expect a build folder: its program is a script that starts the image's.
mkdir -p "$work/build/src/vad" "$work/build/tests"
cp "$1/usr/lib/voice/vad.so" "$work/build/src/vad/"
cc -shared -fPIC -o "$work/build/tests/libchannels.so" "$here/../tests/e2e/channels.c"
printf '#!/bin/sh\nexec unshare --mount %s\n' "$(printf '%q ' "$here/as_on_host.sh" "$work" "$@")" \
  >"$work/build/src/vad-dataplane"
chmod +x "$work/build/src/vad-dataplane"
"$here/../tests/e2e/run.sh" "$work/build" "$here/../tests/e2e" -n 2 --dist worksteal --basetemp="$work/tests" \
  -k '(af_packet or af_xdp) and (test_speech_arrives or test_an_unknown_sender or test_a_drain)'
