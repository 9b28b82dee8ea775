#!/usr/bin/env bash
# Checks every interleaving of the ring with spin; then checks that spin refuses each of three broken rings.
#   model.sh SPSC_RING.PML
set -euo pipefail

model=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# verify FLAG...: 0 if no interleaving violates an assertion, blocks, or never delivers.
verify() {
  spin -a "$@" "$model" >spin.log 2>&1 || { cat spin.log; exit 1; }
  cc -O1 -DNOREDUCE -o pan pan.c
  # -a: acceptance cycles, that is, the ltl formula; weak fairness, or one process alone could run forever.
  ./pan -a -f -m100000 >pan.log 2>&1
  grep -q 'errors: 0' pan.log
}

if ! verify; then
  cat pan.log
  echo "the ring breaks in some interleaving" >&2
  exit 1
fi
grep -E 'states, stored' pan.log
for broken in -DRELEASE=0 -DHAND_BACK=0 -DCAPACITY=3; do
  if verify "$broken"; then
    echo "spin accepts a broken ring ($broken): the model proves nothing" >&2
    exit 1
  fi
  echo "refused, as it has to be: $broken"
done
