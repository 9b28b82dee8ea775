#!/usr/bin/env bash
# Run steps one after another, and report the duration of each. `run` and `nightly` source this file; their argument
# selects one of their jobs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rows=()
failed=0
only=${1:-}
selected=0

# job NAME: return 0 if the steps of this job are selected.
job() {
  [[ -z $only || $only == "$1" ]] || return 1
  selected=1
}

# step NAME COMMAND...: run a step. Steps after a failed one run too, so that one run reports all failures.
step() {
  local name=$1 result=passed begin=$SECONDS
  shift
  printf '\n--- %s\n' "$name"
  "$@" || { result=FAILED failed=1; }
  rows+=("$name" "$((SECONDS - begin))" "$result")
}

# Print the table, and exit with 1 if a step has failed.
finish() {
  if [[ -n $only ]] && ((!selected)); then
    echo "there is no job $only" >&2
    exit 2
  fi
  echo
  printf '%-32s %8s  %s\n' step seconds result "${rows[@]}" total "$SECONDS" ""
  exit "$failed"
}
