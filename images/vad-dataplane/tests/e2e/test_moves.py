"""Callers whose addresses all change at once, as when their NAT restarts: their packets arrive at other queues."""

import contextlib
import socket
import time

import pytest
from audio import silence, speech
from running import AsrHost, Caller, DataPlane, Store, frames, wait_for
from threads import pollers, standing_still

pytestmark = pytest.mark.parametrize("path", ["socket", "af_packet", "af_xdp"], indirect=True, scope="session")
CALLERS = 200
AT_ONCE = 4
"""Packets of each caller that arrive while a poller is paused: 800 in all, of the 1,024 that a receive ring holds."""


def taken(plane: DataPlane) -> int:
    return sum(int(session["packets"]) for session in plane.ask("sessions", limit=1000))


def handed_over_by(plane: DataPlane) -> int:
    return int(plane.ask("counters")["events"]["packets"]["handed_over"])


def wait_for_packets(plane: DataPlane, packets: int) -> None:
    try:
        wait_for("all are taken", lambda: taken(plane) == packets)
    except AssertionError as late:
        late.add_note(f"{taken(plane)} of {packets}, {plane.drops()}")
        raise


def send_all(callers: list[Caller], frame: bytes, packets: int = 1) -> None:
    """Send packets of each caller, slowly enough for a veth's queue of 256."""
    for n, who in enumerate(callers * packets):
        who.send(who.packet(frame))
        if n % 50 == 0:
            time.sleep(0.005)


@pytest.fixture
def callers(store: Store, plane: DataPlane, host: AsrHost, sender: socket.socket) -> list[Caller]:  # noqa: ARG001
    """Open sessions that share one address, so one poller has all of them."""
    found = [Caller(plane, ssrc, sender=sender) for ssrc in range(1000, 1000 + CALLERS)]
    for who in found:
        store.open_session(who.ssrc)

    def has_admitted_all() -> bool:
        send_all([who for who in found if not plane.session(who.ssrc)], bytes(640))
        time.sleep(0.2)
        return int(plane.ask("status")["sessions"]) == len(found)

    wait_for("all are in", has_admitted_all)
    before = taken(plane)
    send_all(found, bytes(640))
    wait_for_packets(plane, before + len(found))
    return found


def owner(plane: DataPlane, who: Caller) -> int:
    """Return the thread that owns a session: while it is paused, no packet of the session is processed."""
    first, second = pollers(plane)
    before = plane.counted(who.ssrc, "packets")
    with standing_still(first):
        who.send(who.packet(bytes(640)))
        with contextlib.suppress(AssertionError):
            wait_for("another one takes it", lambda: plane.counted(who.ssrc, "packets") > before, 1)
            return second
    wait_for("it is taken", lambda: plane.counted(who.ssrc, "packets") > before)
    return first


def test_callers_that_move_simultaneously_lose_nothing(plane: DataPlane, callers: list[Caller]) -> None:
    busy = owner(plane, callers[0])
    before = taken(plane)
    for who in callers:
        who.move()
    with standing_still(busy):
        send_all(callers, silence(0.02), AT_ONCE)
        wait_for("the other poller has handed its part over", lambda: handed_over_by(plane) > 0)
    wait_for_packets(plane, before + AT_ONCE * len(callers))
    assert plane.drops()["ring-full"] == 0


def test_sessions_follow_their_packets(plane: DataPlane, callers: list[Caller], host: AsrHost) -> None:
    """Once they have moved, no packet is handed over any more."""
    for who in callers:
        who.move()
    expected = taken(plane)
    for frame in list(frames(silence(4)))[:50]:
        send_all(callers, frame)
        expected += len(callers)
        wait_for_packets(plane, expected)
    assert plane.ask("counters")["events"]["packets"]["followed"] > 0
    before = handed_over_by(plane)
    for frame in list(frames(speech()))[:50]:
        send_all(callers, frame)
        expected += len(callers)
        wait_for_packets(plane, expected)
    assert handed_over_by(plane) == before
    wait_for("all are heard", lambda: len({chunk.session for chunk in host.chunks}) == len(callers))
    for who in callers:
        places = list(dict.fromkeys(chunk.sequence for chunk in host.of(who.ssrc)))  # some may be sent twice
        assert places == sorted(places), "chunks stay in their order"
