"""Sessions come and go for the duration of VOICE_SOAK_S, and memory stays constant."""

import os
import re
import socket
import time
from itertools import count
from pathlib import Path

import pytest
from audio import silence, speech
from running import AsrHost, Caller, DataPlane, Store, frames, wait_for

SOAK_S = float(os.environ.get("VOICE_SOAK_S", "20"))
AT_ONCE = 20
MAX_SESSIONS = 64  # so few that slots are reused
GROWTH_KIB = 1024


def resident_kib(plane: DataPlane) -> int:
    assert plane.process
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{plane.process.pid}/status").read_text())
    assert found
    return int(found[1])


def converse(store: Store, plane: DataPlane, sender: socket.socket, ssrcs: range) -> None:
    """Admit sessions, let all speak at once, and let them expire."""
    callers = [Caller(plane, ssrc, sender=sender) for ssrc in ssrcs]
    for who in callers:
        store.open_session(who.ssrc)
        who.enter()
    for at, frame in enumerate(frames(speech() + silence(1))):
        for who in callers:
            if at % 50 != who.ssrc % 50:  # 2 % are lost
                who.send(who.packet(frame))
            else:
                who.packet(frame)
        time.sleep(0.002)
    for who in callers:
        store.open_session(who.ssrc, seconds=1)


@pytest.mark.timeout(SOAK_S + 900)
@pytest.mark.parametrize("path", ["af_xdp"], indirect=True, scope="session")
def test_memory_use_is_constant(store: Store, plane: DataPlane, sender: socket.socket) -> None:
    plane.environment["VOICE_MAX_SESSIONS"] = str(MAX_SESSIONS)
    host = AsrHost(store, plane.port("VOICE_CHUNK_PORT"))
    plane.start()
    plane.knows_host()
    samples: list[int] = []
    start = time.monotonic()
    for conversation in count():
        if time.monotonic() - start > SOAK_S and conversation * AT_ONCE > MAX_SESSIONS:
            break
        wait_for("there is room", lambda: plane.ask("status")["sessions"] + AT_ONCE <= MAX_SESSIONS)
        converse(store, plane, sender, range(1 + AT_ONCE * conversation, 1 + AT_ONCE * (conversation + 1)))
        samples.append(resident_kib(plane))
        heard = {chunk.session for chunk in host.chunks}
        host.chunks.clear()
        assert len(heard) >= AT_ONCE
    wait_for("all have gone", lambda: plane.ask("status")["sessions"] == 0)
    half = len(samples) // 2
    assert plane.ask("counters")["events"]["admission"]["admitted"] >= MAX_SESSIONS
    assert max(samples[half:]) <= max(samples[:half]) + GROWTH_KIB, samples
    host.die()
