#!/usr/bin/env bash
# Builds the data plane three times and runs its tests: plain, with the address and undefined-behaviour sanitizers, with
# the thread sanitizer. Installs what it needs from Debian when it is missing.
#   run.sh [BUILD FOLDER]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=${1:-build/vad-dataplane}
mapfile -t packages <"$here/packages.txt"

if ! dpkg-query --show "${packages[@]}" >/dev/null 2>&1; then
  as_root=()
  [[ $EUID == 0 ]] || as_root=(sudo)
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -qq -y --no-install-recommends "${packages[@]}"
fi

for sanitizer in none address,undefined thread; do
  echo "--- sanitizer: $sanitizer"
  folder=$build/${sanitizer/,/-}
  [[ -e $folder/build.ninja ]] || meson setup "$folder" "$here/.." -Db_sanitize="$sanitizer" -Db_lundef=false >/dev/null
  meson test -C "$folder" --print-errorlogs --quiet
done
