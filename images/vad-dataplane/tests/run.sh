#!/usr/bin/env bash
# Builds the data plane three times and runs its tests: plain, with the address and undefined-behaviour sanitizers, with
# the thread sanitizer. Then runs the plain program end to end. Installs what it needs from Debian when it is missing.
#   run.sh [BUILD FOLDER]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=${1:-build/vad-dataplane}

"$here/install.sh" "$here/packages.txt"
"$here/../subprojects/fetch.sh"

for sanitizer in none address,undefined thread; do
  echo "--- sanitizer: $sanitizer"
  folder=$build/${sanitizer/,/-}
  # Nobody measures these: compiling them is most of the time. The image's build tests what is optimised in full.
  options=("-Db_sanitize=$sanitizer" -Db_lundef=false -Drun_in_place=true -Ddebug=false)
  if [[ $sanitizer == none ]]; then
    options+=(-Doptimization=1)
  else
    options+=(-Doptimization=0 -Dc_args=-g1 -Dcpp_args=-g1)
  fi
  # A build of an older checkout does not know options that have come since.
  [[ ! -e $folder/build.ninja ]] || options+=(--reconfigure)
  meson setup "$folder" "$here/.." "${options[@]}"
  meson test -C "$folder" --print-errorlogs --quiet
done

echo "--- end to end"
# `meson test` builds only what its tests name.
meson compile -C "$build/none"
"$here/e2e/run.sh" "$build/none"
