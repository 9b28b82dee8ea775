#!/usr/bin/env bash
# Compiles a VAD module to a loadable form: WebAssembly -> C -> shared object, with the checks of guard.h.
#   build.sh MODULE.wasm MODULE.so CLANG [FLAGS]
# Refuses modules with imports, without the exports of abi.h, with growing memory or with large stack frames.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
wasm=$1 object=$2
shift 2
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

# Only the first version of WebAssembly: every further instruction would need a check. (A bulk copy, for example, would
# be one step whatever its length.)
wasm-validate --disable-bulk-memory --disable-reference-types --disable-multi-value --disable-simd "$wasm"
wasm2c --module-name=vad -o "$work/plain.c" "$wasm"

pages=$(sed -nE 's/.*wasm_rt_allocate_memory\(&instance->w2c_memory, ([0-9]+), .*/\1/p' "$work/plain.c")
[[ $pages =~ ^[0-9]+$ && $pages -le 1024 ]] || { echo "$wasm: needs one memory of at most 64 MiB" >&2; exit 1; }

# Backward jumps go to `loop` labels, which wasm2c names w2c_L<n>; blocks are w2c_B<n>, and jumps to them go forward.
# Functions stay separate: a module's author has split what the compiler cannot process at once.
sed -E -e 's/goto w2c_L/TAKE_STEP goto w2c_L/g' -e 's/^static .* w2c_[A-Za-z0-9_]+\(.*\);$/__attribute__((noinline)) &/' -e '0,/^DEFINE_LOAD\(/s//#include "guard.h"\n&/' \
  "$work/plain.c" >"$work/guarded.c"
cp "$work/plain.h" "$work/module.h"
jumps=$({ grep -oE 'goto w2c_L' "$work/plain.c" || true; } | wc -l)
guarded=$({ grep -oE 'TAKE_STEP goto w2c_L' "$work/guarded.c" || true; } | wc -l)
functions=$(grep -cE '^  FUNC_PROLOGUE;' "$work/guarded.c" || true)
if [[ $jumps != "$guarded" || $functions == 0 ]] || ! grep -q '^#include "guard.h"' "$work/guarded.c"; then
  echo "$wasm: wasm2c's output is not what guard.h is made for" >&2
  exit 1
fi

# The compiler builds vectors from adjacent stores; the limit lets it search whole functions.
"$@" -std=gnu11 -O3 -mllvm -slp-max-store-lookup=100000 -mllvm -slp-schedule-budget=10000000 -fPIC -shared -fvisibility=hidden -fno-math-errno -ffp-contract=off \
  -Wframe-larger-than=16384 -Werror=frame-larger-than -Werror=implicit-function-declaration \
  -DSANDBOX_PAGES="$pages" -I"$here" -I"$here/.." -I"$work" -Wl,-z,defs \
  -o "$object" "$work/guarded.c" "$here/sandbox.c" -lm
