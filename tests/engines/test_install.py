"""The environment of the engines, as installed on this machine."""

import subprocess
from pathlib import Path

import pytest

from voice_sandbox.engines.processes import VENV_FOLDER

ARCH_GET_XCOMP_PERM = 0x1022
"""Request of ``arch_prctl(2)`` for the processor state components that this process may use."""
AMX_TILE_DATA = 18
"""Index of AMX's tile data among these components."""
PERMITTED = f"""
import ctypes
permitted = ctypes.c_ulong()
ctypes.CDLL(None).syscall(158, {ARCH_GET_XCOMP_PERM}, ctypes.byref(permitted))
print(permitted.value >> {AMX_TILE_DATA} & 1)
"""


@pytest.mark.skipif(
    "amx_tile" not in Path("/proc/cpuinfo").read_text(encoding="utf-8"), reason="this processor has no AMX"
)
@pytest.mark.parametrize(("options", "permitted"), [([], "1"), (["-S"], "0")])  # -S: without site-packages' .pth files
def test_python_of_the_engines_has_permission_to_use_amx(options: list[str], permitted: str) -> None:
    """Without the permission, vLLM's attention kernels end the engine with SIGILL."""
    command = [str(VENV_FOLDER / "bin/python"), *options, "-c", PERMITTED]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)  # noqa: S603
    assert done.stdout.strip() == permitted
