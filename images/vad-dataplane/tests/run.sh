#!/usr/bin/env bash
# Builds the data plane and runs its tests, one argument after another: `program` is run end to end, and what is the same
# on every machine is tested beside it; with a value of Meson's `b_sanitize` (`none`, `address,undefined`, `thread`) units
# are. Installs what it needs from Debian when it is missing.
#   run.sh ARGUMENT...
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=build/vad-dataplane

"$here/install.sh" "$here/packages.txt"
"$here/../subprojects/fetch.sh"

# Meson takes ccache where it is installed: what another checkout has compiled is not compiled again.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

for argument in "$@"; do
  echo "--- $argument"
  sanitizer=${argument/program/none}
  folder=$build/${sanitizer/,/-}
  # Nobody measures these: compiling them is most of the time. The image's build tests what is optimised in full.
  options=("-Db_sanitize=$sanitizer" -Db_lundef=false -Drun_in_place=true -Ddebug=false)
  compilers=()
  if [[ $sanitizer == none ]]; then
    options+=(-Doptimization=1)
  else
    options+=(-Doptimization=0 -Dc_args=-g1 -Dcpp_args=-g1)
    # A second compiler's opinion of the code, in two thirds of the first one's time. Its ThreadSanitizer does not let
    # tests count allocations.
    [[ $sanitizer != address* ]] || compilers=(CC=clang CXX=clang++)
  fi
  # A build of an older checkout does not know options that have come since.
  [[ ! -e $folder/build.ninja ]] || options+=(--reconfigure)
  env "${compilers[@]}" meson setup "$folder" "$here/.." "${options[@]}"
  if [[ $argument != program ]]; then
    meson test -C "$folder" --no-suite build-machine --print-errorlogs --quiet
    continue
  fi
  meson test -C "$folder" --suite build-machine --print-errorlogs --quiet
  meson compile -C "$folder" vad-dataplane steer.bpf.o vad.so misbehaving.so counting channels
  "$here/e2e/run.sh" "$folder" -n 4 --dist worksteal --ignore "$here/e2e/test_docker.py" "$here/e2e"
  # Alone: huge pages are the machine's, and programs of other tests take what these reserve.
  "$here/e2e/run.sh" "$folder" "$here/e2e/test_docker.py"
done
