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

# As apt fetches everything else: Debian's mirror is what a closed network lets through.
archive=$here/../subprojects/packagecache/libsrtp2_2.5.0.orig.tar.gz
if [[ ! -e $archive ]]; then
  wrap=$here/../subprojects/libsrtp2.wrap
  mkdir -p "${archive%/*}"
  /usr/lib/apt/apt-helper download-file "$(sed -n 's/^source_url = //p' "$wrap")" "$archive" \
    "SHA256:$(sed -n 's/^source_hash = //p' "$wrap")"
fi

for sanitizer in none address,undefined thread; do
  echo "--- sanitizer: $sanitizer"
  folder=$build/${sanitizer/,/-}
  options=("-Db_sanitize=$sanitizer" -Db_lundef=false -Drun_in_place=true)
  # Sanitizers' code takes the compiler long to optimise, and nobody measures it.
  [[ $sanitizer == none ]] || options+=(-Doptimization=1)
  [[ -e $folder/build.ninja ]] || meson setup "$folder" "$here/.." "${options[@]}"
  meson test -C "$folder" --print-errorlogs --quiet
done
