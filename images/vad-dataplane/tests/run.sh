#!/usr/bin/env bash
# Builds the data plane and runs its tests, one argument after another: `program` runs end to end, with the tests that
# do not depend on the machine; a value of Meson's `b_sanitize` (`none`, `address,undefined`, `thread`) runs the unit
# tests. Installs missing packages from Debian.
#   run.sh ARGUMENT...
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=build/vad-dataplane
# Meson ends a test after 30 s; on a busy machine the model checker alone needs longer.
meson_test=(meson test --print-errorlogs --quiet --timeout-multiplier 20)

"$here/install.sh" "$here/packages.txt"
"$here/../subprojects/fetch.sh"

# Meson uses ccache where it is installed, so other checkouts' results are reused.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

for argument in "$@"; do
  echo "--- $argument"
  sanitizer=${argument/program/none}
  folder=$build/${sanitizer/,/-}
  # These are not measured, and compiling them is most of the time. The image's build tests the fully optimised program.
  options=("-Db_sanitize=$sanitizer" -Db_lundef=false -Drun_in_place=true -Ddebug=false)
  compilers=()
  if [[ $sanitizer == none ]]; then
    options+=(-Doptimization=1)
  else
    options+=(-Doptimization=0 -Dc_args=-g1 -Dcpp_args=-g1)
    # A second compiler checks the code in two thirds of the first one's time. Its ThreadSanitizer does not let tests
    # count allocations.
    [[ $sanitizer != address* ]] || compilers=(CC=clang CXX=clang++)
  fi
  # A build folder of an older checkout lacks newer options.
  [[ ! -e $folder/build.ninja ]] || options+=(--reconfigure)
  env "${compilers[@]}" meson setup "$folder" "$here/.." "${options[@]}"
  if [[ $argument != program ]]; then
    "${meson_test[@]}" -C "$folder" --no-suite build-machine
    continue
  fi
  "${meson_test[@]}" -C "$folder" --suite build-machine
  meson compile -C "$folder" vad-dataplane steer.bpf.o vad.so misbehaving.so counting channels
  "$here/e2e/run.sh" "$folder" -n 4 --dist worksteal --ignore "$here/e2e/test_docker.py" "$here/e2e"
  # Alone: huge pages are shared by the machine, and programs of other tests take those that these reserve.
  "$here/e2e/run.sh" "$folder" "$here/e2e/test_docker.py"
done
