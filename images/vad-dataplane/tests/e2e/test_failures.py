"""What is told when a part of the program fails."""

import ctypes
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import BUILD, Caller, DataPlane, wait_for

pytestmark = pytest.mark.parametrize("path", ["socket"], indirect=True, scope="session")
MISBEHAVING = BUILD.parent / "tests" / "vad" / "misbehaving.so"
READ_OUTSIDE = 1
"""As the first sample of a frame, makes that module leave its memory (tests/vad/misbehaving.c)."""
_PTRACE_DETACH, _PTRACE_SEIZE, _PTRACE_INTERRUPT = 17, 0x4206, 0x4207
_libc = ctypes.CDLL(None, use_errno=True)


def _ptrace(request: int, thread: int) -> None:
    if _libc.ptrace(ctypes.c_long(request), ctypes.c_long(thread), None, None) == -1:
        raise OSError(ctypes.get_errno(), f"ptrace {request} of thread {thread}")


@pytest.fixture
def hanging(plane: DataPlane) -> Iterator[int]:
    """One of the pollers, which stands still while the other works."""
    plane.start()
    assert plane.process
    tasks = Path(f"/proc/{plane.process.pid}/task").iterdir()
    thread = next(int(task.name) for task in tasks if (task / "comm").read_text().strip() == "poller")
    _ptrace(_PTRACE_SEIZE, thread)
    _ptrace(_PTRACE_INTERRUPT, thread)
    os.waitpid(thread, 0x40000000)  # __WALL: a thread's stop
    yield thread
    _ptrace(_PTRACE_DETACH, thread)


def test_one_poller_that_hangs_closes_the_health_port(plane: DataPlane, hanging: int) -> None:
    assert hanging
    wait_for("it is noticed", lambda: bool(plane.ask("status")["state"] == "stalled"), 10)
    with pytest.raises(ConnectionRefusedError):
        plane.connect()


def test_a_module_that_is_stopped_is_told(plane: DataPlane, caller: Caller) -> None:
    assert plane.ask("counters")["vad"]["stopped"] == 0
    beside = Path(plane.environment["VOICE_VAD_MODULE"]).with_name(MISBEHAVING.name)
    plane.ask("swap-vad", module=str(shutil.copy(MISBEHAVING, beside)))

    def is_stopped() -> bool:
        caller.say(READ_OUTSIDE.to_bytes(2, "little") * 320)
        stopped: int = plane.ask("counters")["vad"]["stopped"]
        return stopped == 1

    wait_for("it is stopped", is_stopped, 10)
    assert plane.ask("counters")["events"]["vad"]["traps"] == 1
    plane.ask("swap-vad", module=plane.environment["VOICE_VAD_MODULE"])
    caller.say(bytes(640))
    wait_for("another works", lambda: bool(plane.ask("counters")["vad"]["stopped"] == 0), 10)
