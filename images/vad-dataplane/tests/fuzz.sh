#!/usr/bin/env bash
# Builds a fuzz target with libFuzzer, which comes with clang whatever compiles the rest, and gives it 100,000
# inputs, which are the same each time, or VOICE_FUZZ_INPUTS of them.
#   fuzz.sh SOURCE...
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
clang++ -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
  -I "$(dirname "$0")/../src" "$@" -o "$work/fuzz"
cd "$work"
./fuzz -runs="${VOICE_FUZZ_INPUTS:-100000}" -max_len=512 -seed=1 -verbosity=0 -print_final_stats=1
