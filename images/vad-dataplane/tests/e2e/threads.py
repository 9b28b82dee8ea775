"""Threads of the program that are paused while the others continue, as on a busy machine."""

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

from running import DataPlane

_PTRACE_DETACH, _PTRACE_SEIZE, _PTRACE_INTERRUPT = 17, 0x4206, 0x4207
_libc = ctypes.CDLL(None, use_errno=True)


def _ptrace(request: int, thread: int) -> None:
    if _libc.ptrace(ctypes.c_long(request), ctypes.c_long(thread), None, None) == -1:
        raise OSError(ctypes.get_errno(), f"ptrace {request} of thread {thread}")


def pollers(plane: DataPlane) -> list[int]:
    """Return the ids of the threads that poll receive queues."""
    assert plane.process
    tasks = Path(f"/proc/{plane.process.pid}/task").iterdir()
    return sorted(int(task.name) for task in tasks if (task / "comm").read_text().strip() == "poller")


@contextlib.contextmanager
def standing_still(thread: int) -> Iterator[None]:
    """Pause a thread for the duration of the scope."""
    _ptrace(_PTRACE_SEIZE, thread)
    _ptrace(_PTRACE_INTERRUPT, thread)
    os.waitpid(thread, 0x40000000)  # __WALL: also waits for a stopped thread
    try:
        yield
    finally:
        _ptrace(_PTRACE_DETACH, thread)
