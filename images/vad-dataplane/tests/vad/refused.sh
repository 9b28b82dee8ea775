#!/usr/bin/env bash
# Modules that build.sh must refuse, and one that it must accept.
#   refused.sh BUILD.sh CLANG [FLAGS]
set -euo pipefail

build=$1
shift
compiler=("$@")
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

exports='(func (export "vad_abi_version") (result i32) i32.const 1)
  (func (export "vad_stream_count") (result i32) i32.const 1)
  (func (export "vad_frame_offset") (result i32) i32.const 0)
  (func (export "vad_state_offset") (result i32) i32.const 0)
  (func (export "vad_state_bytes") (result i32) i32.const 0)
  (func (export "vad_init"))
  (func (export "vad_reset") (param i32))'
process='(func (export "vad_process") (param i32) (result i32) i32.const 1)'
memory='(memory (export "memory") 1)'

# Many live values across a call need a large stack frame. (Function 6 is vad_reset.) They are not adjacent: the
# compiler would spend a minute trying to combine adjacent ones.
crowded() {
  echo '(func (export "vad_process") (param i32) (result i32)'
  for n in $(seq 1 2200); do echo "(local \$v$n i64)"; done
  for n in $(seq 1 2200); do echo "(local.set \$v$n (i64.load (i32.const $((24 * n)))))"; done
  echo '(call 6 (local.get 0))'
  for n in $(seq 1 2200); do echo "(i64.store (i32.const $((24 * n + 8))) (i64.mul (local.get \$v$n) (i64.const $n)))"; done
  echo '(i32.const 1))'
}

check() { # check NAME FIELDS WHAT_BUILD_SAYS
  echo "(module $2)" >"$work/$1.wat"
  wat2wasm -o "$work/$1.wasm" "$work/$1.wat"
  got=taken
  "$build" "$work/$1.wasm" "$work/$1.so" "${compiler[@]}" >"$work/$1.log" 2>&1 || got=refused
  if [[ -z $3 && $got == refused ]] || [[ -n $3 && $got == taken ]] || ! grep -qE "$3" <(cat "$work/$1.log"; echo); then
    echo "$1: $got; expected to hear: ${3:-nothing}"
    cat "$work/$1.log"
    exit 1
  fi
}

check plain "$memory $exports $process" ''
check import '(import "env" "system" (func (param i32)))'" $memory $exports $process" 'Z_env|undefined reference'
check missing-export "$memory $exports" 'implicit declaration of function .*vad_process'
check no-memory "$exports $process" 'needs one memory'
check much-memory '(memory (export "memory") 2000)'" $exports $process" 'needs one memory'
check bulk-copy "$memory $exports "'(func (export "vad_process") (param i32) (result i32)
  (memory.copy (i32.const 0) (i32.const 9) (i32.const 99)) i32.const 1)' 'unexpected opcode'
check wrong-type "$memory $exports "'(func (export "vad_process") (result i32) i32.const 1)' 'too many arguments'
check large-frame "$memory $exports $(crowded)" 'stack frame size'
