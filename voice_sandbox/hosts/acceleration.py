"""Selects KVM if a kernel boots with it, otherwise emulation."""

import subprocess
from functools import cache
from pathlib import Path

KVM, EMULATION = "kvm", "tcg,thread=multi"
"""Values for QEMU's ``-accel``."""
BOOT_TIMEOUT_S = 60
"""Timeout for a kernel boot with KVM, which usually takes two seconds."""
_BOOT_MESSAGE = b"Kernel panic - not syncing: VFS"
"""Last message from a kernel that has initialized its devices but cannot find a root file system."""


@cache
def detect_accelerator(kernel: Path, within_s: float = BOOT_TIMEOUT_S) -> str:
    """Return ``KVM`` if the kernel boots with KVM in time, and ``EMULATION`` otherwise.

    It is not sufficient that ``/dev/kvm`` can be opened: with some nested KVMs, the kernel never logs its first line.
    """
    command = [
        *("qemu-system-x86_64", "-accel", KVM, "-cpu", "max", "-machine", "pc", "-m", "512M"),
        *("-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot"),
        *("-kernel", str(kernel), "-append", "console=ttyS0 panic=-1"),
    ]
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=within_s, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return EMULATION
    return KVM if _BOOT_MESSAGE in done.stdout else EMULATION
