"""Error messages when a part of the program fails."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import BUILD, Caller, DataPlane, wait_for
from threads import pollers, standing_still

pytestmark = pytest.mark.parametrize("path", ["socket"], indirect=True, scope="session")
MISBEHAVING = BUILD.parent / "tests" / "vad" / "misbehaving.so"
READ_OUTSIDE = 1
"""As the first sample of a frame, makes the module access invalid memory (tests/vad/misbehaving.c)."""


@pytest.fixture
def hanging(plane: DataPlane) -> Iterator[int]:
    """Pause one of the pollers while the other continues."""
    plane.start()
    thread = pollers(plane)[0]
    with standing_still(thread):
        yield thread


def test_one_poller_that_hangs_closes_the_health_port(plane: DataPlane, hanging: int) -> None:
    assert hanging
    wait_for("it is noticed", lambda: bool(plane.ask("status")["state"] == "stalled"), 10)
    with pytest.raises(ConnectionRefusedError):
        plane.connect()


def test_a_stopped_module_is_reported(plane: DataPlane, caller: Caller) -> None:
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
