"""Who may send in a session's name, from where, and until when."""

import contextlib
import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from audio import silence, speech
from running import COMMIT, END_OF_SPEECH, LAST, AsrHost, Caller, DataPlane, Store, frames, wait_for
from srtp import GCM_BYTES, master, text_of

pytestmark = pytest.mark.parametrize("path", ["socket", "af_packet", "af_xdp"], indirect=True, scope="session")
KEY, GCM_KEY = master(1), master(1, GCM_BYTES)
FORGED_PER_S = 1265


@pytest.fixture
def start(store: Store, plane: DataPlane) -> Iterator[Callable[..., AsrHost]]:
    """Start the program with settings, and its ASR host."""
    started: list[AsrHost] = []

    def run(**settings: object) -> AsrHost:
        plane.environment |= {name: str(value) for name, value in settings.items()}
        started.append(AsrHost(store, plane.port("VOICE_CHUNK_PORT")))
        plane.start()
        plane.knows_host()
        return started[0]

    yield run
    for host in started:
        host.die()


def entered(store: Store, plane: DataPlane, ssrc: int, key: bytes = b"", seconds: int = 3600) -> Caller:
    """Open a session and let it in."""
    who = Caller(plane, ssrc, key=key)
    store.open_session(ssrc, srtp_key=text_of(key) if key else None, seconds=seconds)
    who.enter()
    return who


class Forger(threading.Thread):
    """Sends in a session's name without its key, until it is stopped."""

    def __init__(self, plane: DataPlane, ssrc: int) -> None:
        super().__init__(daemon=True)
        self._caller = Caller(plane, ssrc, key=master(2))
        self._stopping = threading.Event()

    def run(self) -> None:
        made = [self._caller.packet(frame) for frame in frames(silence(10))]
        start = time.monotonic()
        for count, packet in enumerate(itertools.cycle(made)):
            if self._stopping.wait(max(0.0, start + count / FORGED_PER_S - time.monotonic())):
                return
            self._caller.send(packet)

    def stop(self) -> None:
        self._stopping.set()
        self.join()


@pytest.mark.parametrize("key", [b"", KEY, GCM_KEY], ids=["plain", "srtp", "gcm"])
@pytest.mark.usefixtures("host")
def test_a_sender_whose_address_changes_is_heard_throughout(store: Store, plane: DataPlane, key: bytes) -> None:
    who = entered(store, plane, 7, key)
    heard: list[int] = []
    while len(heard) < 8 or (plane.ask("counters")["events"]["packets"]["handed_over"] == 0 and len(heard) < 64):
        before = plane.counted(who.ssrc, "packets")
        who.move()
        who.say(silence(0.4), pace_s=0.01)
        with contextlib.suppress(AssertionError):
            wait_for("all are taken", lambda: plane.counted(who.ssrc, "packets") == before + 20, 1)  # noqa: B023
        heard.append(plane.counted(who.ssrc, "packets") - before)
    assert heard == [20] * len(heard)


def test_forged_packets_cost_a_call_nothing(store: Store, plane: DataPlane, start: Callable[..., AsrHost]) -> None:
    start(VOICE_SESSION_PACKETS_PER_S=100)
    who = entered(store, plane, 7, KEY)
    before = plane.counted(who.ssrc, "packets")
    forger = Forger(plane, who.ssrc)
    forger.start()
    who.say(silence(10), pace_s=0.011)
    forger.stop()
    who.is_taken()
    assert plane.counted(who.ssrc, "packets") - before == 500
    drops = plane.drops()
    assert drops["unauthenticated"] > 20
    assert drops["rate-limited"] > drops["unauthenticated"], "most of them cost no decryption"
    assert drops["replay"] == 0, "forged counts as forged"


@pytest.mark.usefixtures("host")
def test_a_sender_whose_address_changes_is_found_among_forgers(store: Store, plane: DataPlane) -> None:
    who = entered(store, plane, 7, KEY)
    forger = Forger(plane, who.ssrc)
    forger.start()
    who.say(silence(0.4), pace_s=0.02)
    who.move()
    before = plane.counted(who.ssrc, "packets")

    def is_heard() -> bool:
        who.say(silence(0.4), pace_s=0.02)
        return plane.counted(who.ssrc, "packets") > before + 10

    wait_for("it is heard from there", is_heard)
    forger.stop()


def test_forged_packets_keep_no_session_alive(store: Store, plane: DataPlane, start: Callable[..., AsrHost]) -> None:
    start(VOICE_SILENT_AFTER_S=2)
    who = entered(store, plane, 7, KEY)
    forger = Forger(plane, who.ssrc)
    forger.start()
    wait_for("it is taken for silent", lambda: plane.ask("counters")["events"]["admission"]["silent"] == 1, 20)
    forger.stop()


@pytest.mark.parametrize("how", ["closed", "deleted"])
@pytest.mark.usefixtures("host")
def test_a_session_that_is_over_for_the_gateway_is_not_heard_any_more(store: Store, plane: DataPlane, how: str) -> None:
    who, other = entered(store, plane, 7), entered(store, plane, 8)
    if how == "closed":
        store.do("HSET", "session:7", "state", "closed")
    else:
        store.do("DEL", "session:7")

    def is_gone() -> bool:
        who.say(silence(0.2))
        return plane.session(7) is None

    wait_for("it is gone", is_gone, 20)
    assert plane.session(other.ssrc)
    assert plane.ask("counters")["events"]["admission"]["closed"] == 1


@pytest.mark.usefixtures("host")
def test_a_session_whose_time_is_extended_goes_on(store: Store, plane: DataPlane) -> None:
    who, short = entered(store, plane, 7, seconds=6), entered(store, plane, 8, seconds=6)
    store.do("HSET", "session:7", "expires_at", int(time.time()) + 3600)
    wait_for("the other is gone", lambda: plane.session(short.ssrc) is None, 20)
    time.sleep(1)
    assert plane.session(who.ssrc)


@pytest.mark.usefixtures("host")
def test_plain_rtp_is_taken_from_its_gateway_alone(store: Store, plane: DataPlane) -> None:
    who = entered(store, plane, 7)
    before = plane.counted(who.ssrc, "packets")
    thief = Caller(plane, who.ssrc, sender=Caller.open_socket(plane, plane.network.other_address))
    thief.sequence = who.sequence
    thief.say(silence(0.2))
    wait_for("it is refused", lambda: plane.drops()["unauthenticated"] >= 1)
    who.say(silence(0.2))
    who.is_taken()
    assert plane.counted(who.ssrc, "packets") - before == 10
    store.do("HSET", "session:7", "gateway", plane.network.other_address)  # the caller's socket is another gateway's

    def is_heard() -> bool:
        thief.say(silence(0.1), pace_s=0.02)
        return plane.counted(who.ssrc, "packets") > before + 15

    wait_for("the new gateway is heard", is_heard, 10)


def test_a_flood_of_unknown_senders_is_looked_up_within_the_allowance(
    plane: DataPlane, start: Callable[..., AsrHost], sender: socket.socket
) -> None:
    per_s = 50
    start(VOICE_ADMISSIONS_PER_S=per_s)
    to = (plane.network.near_address, plane.port("VOICE_RTP_PORT"))
    began = time.monotonic()
    for ssrc in range(1, 4001):
        sender.sendto(struct.pack(">BBHII", 0x80, 96, 1, 0, ssrc * 0x01000193 & 0xFFFFFFFF), to)
        if ssrc % 10 == 0:
            time.sleep(0.002)
    wait_for("all are dropped", lambda: sum(plane.drops().values()) >= 4000)
    looked_up = plane.ask("counters")["events"]["admission"]["refused"]
    assert 0 < looked_up <= per_s * (time.monotonic() - began + 1)
    assert plane.drops()["admission-full"] > 0


@pytest.mark.usefixtures("host")
def test_reports_of_unknown_senders_are_not_looked_up(plane: DataPlane, sender: socket.socket) -> None:
    to = (plane.network.near_address, plane.port("VOICE_RTP_PORT"))
    for kind in (200, 201, 202, 203, 204, 207):
        sender.sendto(struct.pack(">BBHIIII", 0x80, kind, 4, 77, 1, 2, 3), to)
    wait_for("they are dropped", lambda: plane.drops()["not-rtp"] == 6)
    time.sleep(0.3)
    assert plane.ask("counters")["events"]["admission"]["refused"] == 0


@pytest.mark.parametrize("key", [b"", KEY, GCM_KEY], ids=["plain", "srtp", "gcm"])
def test_a_commit_ends_what_is_being_said_and_not_the_session(
    store: Store, plane: DataPlane, host: AsrHost, key: bytes
) -> None:
    who = entered(store, plane, 8, key)
    who.say(silence(4))  # the VAD learns the room
    who.is_taken()
    host.chunks.clear()
    for _ in range(2):
        before = len(host.of(8))
        who.say(speech("how can I help you today")[:32_000])
        wait_for("speech is heard", partial(lambda before: len(host.of(8)) > before + 2, before))
        who.send(who.commit())
        wait_for("its end", lambda: host.of(8)[-1].flags & (END_OF_SPEECH | COMMIT) == END_OF_SPEECH | COMMIT)
    assert plane.session(8)


@pytest.mark.parametrize("key", [b"", KEY, GCM_KEY], ids=["plain", "srtp", "gcm"])
def test_a_goodbye_ends_the_session(store: Store, plane: DataPlane, host: AsrHost, key: bytes) -> None:
    who = entered(store, plane, 7, key)
    who.say(silence(4))  # the VAD learns the room
    who.is_taken()
    host.chunks.clear()
    who.say(speech("how can I help you today")[:32_000])
    wait_for("speech is heard", lambda: len(host.of(7)) > 2)
    began = time.monotonic()
    who.send(who.goodbye())
    wait_for("its end", lambda: host.of(7)[-1].flags & (END_OF_SPEECH | LAST) == END_OF_SPEECH | LAST)
    wait_for("the session is gone", lambda: plane.session(7) is None)
    assert time.monotonic() - began < 5
    who.say(silence(0.1))  # was on its way
    time.sleep(0.3)
    assert plane.session(7) is None
