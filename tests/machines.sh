#!/usr/bin/env bash
# Runs tests as on other machines: one with an older CPU, one with a single core, one with busy cores.
#   machines.sh "MACHINE..." [PYTEST ARGUMENT...]
set -euo pipefail
cd "$(dirname "$0")/.."

hogs=()
trap '((${#hogs[@]} == 0)) || kill "${hogs[@]}"' EXIT

for machine in $1; do
  case $machine in
    older-cpu)
      echo "--- an older CPU: NumPy, its BLAS and CTranslate2 do without AVX"
      features=$(python -c 'import numpy; print(*numpy.show_config("dicts")["SIMD Extensions"]["found"])')
      NPY_DISABLE_CPU_FEATURES=$features OPENBLAS_CORETYPE=Nehalem CT2_FORCE_CPU_ISA=GENERIC \
        pytest -n 2 --dist loadfile "${@:2}"
      ;;
    single-core)
      echo "--- a single core"
      core=$(python -c 'import os; print(min(os.sched_getaffinity(0)))')
      taskset --cpu-list "$core" pytest "${@:2}"
      ;;
    busy-cores)
      echo "--- busy cores"
      for _ in $(seq "$(nproc)"); do
        while :; do :; done &
        hogs+=("$!")
      done
      pytest -n 2 --dist loadfile "${@:2}"
      ;;
    *)
      echo "unknown machine: $machine; use older-cpu, single-core or busy-cores" >&2
      exit 2
      ;;
  esac
done
