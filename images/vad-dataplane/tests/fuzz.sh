#!/usr/bin/env bash
# Builds a fuzz target with libFuzzer, which clang provides, and runs it for VOICE_FUZZ_S seconds. The corpus in
# VOICE_FUZZ_CORPORA, a folder for each target, is extended if it is set.
#   fuzz.sh NAME SOURCE...
set -euo pipefail

name=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
clang++ -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
  -I "$(dirname "$0")/../src" -I "$(dirname "$0")" "$@" -lopus -lspeexdsp -lhiredis -lssl -lcrypto -o "$work/fuzz"
corpus="$(realpath -m "${VOICE_FUZZ_CORPORA:-$work}")/${name// /-}"
mkdir -p "$corpus"
cd "$work"
./fuzz "$corpus" -max_total_time="${VOICE_FUZZ_S:-5}" -max_len=2048 -seed=1 -verbosity=0 -print_final_stats=1
