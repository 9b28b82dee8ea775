#!/usr/bin/env bash
# Runs steps one after another, and says at the end what each took. Sourced by `run` and `nightly`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rows=()
failed=0

# step NAME COMMAND...: the steps behind one that fails run too, so that one run says all that is wrong.
step() {
  local name=$1 result=passed begin=$SECONDS
  shift
  printf '\n--- %s\n' "$name"
  "$@" || { result=FAILED failed=1; }
  rows+=("$name" "$((SECONDS - begin))" "$result")
}

# Prints the table and ends with 1 when a step has failed.
finish() {
  echo
  printf '%-32s %8s  %s\n' step seconds result "${rows[@]}" total "$SECONDS" ""
  exit "$failed"
}
