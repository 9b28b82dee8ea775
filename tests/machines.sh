#!/usr/bin/env bash
# Runs tests as on three other machines: one with an older CPU, one with a single core, one with busy cores.
#   machines.sh [PYTEST ARGUMENT...]
set -euo pipefail
cd "$(dirname "$0")/.."

hogs=()
trap '((${#hogs[@]} == 0)) || kill "${hogs[@]}"' EXIT

echo "--- an older CPU: NumPy, its BLAS and CTranslate2 do without AVX"
features=$(python -c 'import numpy; print(*numpy.show_config("dicts")["SIMD Extensions"]["found"])')
NPY_DISABLE_CPU_FEATURES=$features OPENBLAS_CORETYPE=Nehalem CT2_FORCE_CPU_ISA=GENERIC pytest "$@"

echo "--- a single core"
core=$(python -c 'import os; print(min(os.sched_getaffinity(0)))')
taskset --cpu-list "$core" pytest "$@"

echo "--- busy cores"
for _ in $(seq "$(nproc)"); do
  while :; do :; done &
  hogs+=("$!")
done
pytest "$@"
