#!/usr/bin/env bash
# Installs what the VAD's bench needs from Debian when it is missing: speech, a synthesizer, a decoder, and what builds the
# data plane.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
mapfile -t packages < <(cat "$here/packages.txt" "$here/../../images/vad-dataplane/tests/packages.txt")

if ! dpkg-query --show "${packages[@]}" >/dev/null 2>&1; then
  as_root=()
  [[ $EUID == 0 ]] || as_root=(sudo)
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -qq -y --no-install-recommends "${packages[@]}"
fi
