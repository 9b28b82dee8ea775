"""Authentication of senders: who may send for a session, from which address, and until when."""

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
MAX_BACKLOG = 20
"""Packets that may arrive together, well within the burst of every limit per second."""


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
    """Open a session and wait until it is admitted."""
    who = Caller(plane, ssrc, key=key)
    store.open_session(ssrc, srtp_key=text_of(key) if key else None, seconds=seconds)
    who.enter()
    return who


class Forger(threading.Thread):
    """Sends packets in a session's name without its key, until it is stopped."""

    def __init__(self, plane: DataPlane, ssrc: int, sender: socket.socket | None = None) -> None:
        super().__init__(daemon=True)
        self._caller = Caller(plane, ssrc, key=master(2), sender=sender)
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
def test_audio_continues_while_a_senders_address_changes(store: Store, plane: DataPlane, key: bytes) -> None:
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


def test_forged_packets_do_not_affect_a_call(store: Store, plane: DataPlane, start: Callable[..., AsrHost]) -> None:
    start(VOICE_SESSION_PACKETS_PER_S=100)
    who = entered(store, plane, 7, KEY)
    before = plane.counted(who.ssrc, "packets")
    forger = Forger(plane, who.ssrc)
    forger.start()
    who.say(silence(10), pace_s=0.011, max_backlog=MAX_BACKLOG)
    forger.stop()
    who.is_taken()
    assert plane.counted(who.ssrc, "packets") - before == 500
    drops = plane.drops()
    assert drops["unauthenticated"] > 20
    assert drops["rate-limited"] > drops["unauthenticated"], "most of them cost no decryption"
    assert drops["replay"] == 0, "forged counts as forged"


@pytest.mark.parametrize("key", [KEY, GCM_KEY], ids=["srtp", "gcm"])
def test_packets_with_a_spoofed_address_do_not_silence_the_caller(
    store: Store, plane: DataPlane, start: Callable[..., AsrHost], sender: socket.socket, key: bytes
) -> None:
    """An attacker can forge a caller's address, so none tells those packets from the caller's."""
    start(VOICE_SESSION_PACKETS_PER_S=200)
    who = Caller(plane, 7, key=key, sender=sender)
    store.open_session(who.ssrc, srtp_key=text_of(key))
    who.enter()
    before = plane.counted(who.ssrc, "packets")
    forger = Forger(plane, who.ssrc, sender)
    forger.start()
    who.say(silence(4), pace_s=0.015, max_backlog=MAX_BACKLOG)
    forger.stop()
    who.is_taken()
    assert plane.counted(who.ssrc, "packets") - before == 200
    assert plane.drops()["rate-limited"] == 0


@pytest.mark.parametrize("key", [b"", KEY, GCM_KEY], ids=["plain", "srtp", "gcm"])
@pytest.mark.usefixtures("host")
def test_a_sender_may_alternate_between_two_addresses(store: Store, plane: DataPlane, key: bytes) -> None:
    """A telephone with two uplinks alternates between them from packet to packet."""
    who = entered(store, plane, 7, key)
    before = plane.counted(who.ssrc, "packets")
    with Caller.open_socket(plane) as first, Caller.open_socket(plane) as second:
        for frame, sender in zip(frames(silence(6)), itertools.cycle((first, second)), strict=False):
            who.send(who.packet(frame), sender)
            # For an unknown address a poller hands over 50 packets per second, with a burst of 50.
            time.sleep(0.01)
            who.wait_for_backlog(MAX_BACKLOG)
        who.is_taken()
    assert plane.counted(who.ssrc, "packets") - before == 300
    assert plane.drops()["rate-limited"] == 0


@pytest.mark.parametrize("key", [b"", KEY, GCM_KEY], ids=["plain", "srtp", "gcm"])
@pytest.mark.parametrize("each", [2, 4], ids=["half", "a quarter"])
@pytest.mark.usefixtures("host")
def test_reports_from_a_separate_port_lose_no_audio(store: Store, plane: DataPlane, key: bytes, each: int) -> None:
    """RTP and RTCP use separate ports unless both sides agree on one (RFC 3550, section 11)."""
    who = entered(store, plane, 7, key)
    before = plane.counted(who.ssrc, "packets")
    with Caller.open_socket(plane) as port_of_reports:
        for n, frame in enumerate(frames(silence(6))):
            who.send(who.packet(frame))
            if n % each == 0:
                who.send(who.report(), port_of_reports)
                who.sent -= 1  # is not counted as audio
            time.sleep(0.004)
            who.wait_for_backlog(MAX_BACKLOG)
        who.is_taken()
    assert plane.counted(who.ssrc, "packets") - before == 300


@pytest.mark.parametrize("key", [b"", KEY], ids=["plain", "srtp"])
def test_packets_per_session_are_limited_on_every_path(
    store: Store, plane: DataPlane, start: Callable[..., AsrHost], key: bytes
) -> None:
    per_s = 100
    start(VOICE_SESSION_PACKETS_PER_S=per_s)
    who = entered(store, plane, 7, key)
    made = [who.packet(frame) for frame in frames(silence(30))]
    before, began = plane.counted(who.ssrc, "packets"), time.monotonic()
    for n, packet in enumerate(made):
        who.send(packet)
        if n % 20 == 0:
            time.sleep(0.005)
    wait_for("it is limited", lambda: plane.drops()["rate-limited"] > 0)
    taken = plane.counted(who.ssrc, "packets") - before
    assert taken <= per_s * (time.monotonic() - began + 1) + 1


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
def test_a_session_ended_by_the_gateway_is_dropped(store: Store, plane: DataPlane, how: str) -> None:
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
def test_an_extended_session_continues(store: Store, plane: DataPlane) -> None:
    who, short = entered(store, plane, 7, seconds=6), entered(store, plane, 8, seconds=6)
    store.do("HSET", "session:7", "expires_at", int(time.time()) + 3600)
    wait_for("the other is gone", lambda: plane.session(short.ssrc) is None, 20)
    time.sleep(1)
    assert plane.session(who.ssrc)


@pytest.mark.usefixtures("host")
def test_plain_rtp_is_accepted_only_from_its_gateway(store: Store, plane: DataPlane) -> None:
    who = entered(store, plane, 7)
    before = plane.counted(who.ssrc, "packets")
    thief = Caller(plane, who.ssrc, sender=Caller.open_socket(plane, plane.network.other_address))
    thief.sequence = who.sequence
    thief.say(silence(0.2))
    wait_for("it is refused", lambda: plane.drops()["unauthenticated"] >= 1)
    who.say(silence(0.2))
    who.is_taken()
    assert plane.counted(who.ssrc, "packets") - before == 10
    # the caller's socket belongs to another gateway
    store.do("HSET", "session:7", "gateway", plane.network.other_address)

    def is_heard() -> bool:
        thief.say(silence(0.1), pace_s=0.02)
        return plane.counted(who.ssrc, "packets") > before + 15

    wait_for("the new gateway is heard", is_heard, 10)


@pytest.mark.parametrize("key", [KEY, GCM_KEY], ids=["srtp", "gcm"])
@pytest.mark.usefixtures("host")
def test_a_restarted_sender_with_the_same_key_is_accepted(store: Store, plane: DataPlane, key: bytes) -> None:
    """A restarted telephone numbers its packets from the start, which a receiver would take for replays."""
    who = Caller(plane, 7, key=key)
    who.sequence = 40_000
    store.open_session(who.ssrc, srtp_key=text_of(key))
    who.enter()
    who.say(silence(0.4))
    again = Caller(plane, who.ssrc, key=key)
    again.sequence = 500
    before = plane.counted(who.ssrc, "packets")

    def is_heard() -> bool:
        again.say(silence(0.4), pace_s=0.02)
        return plane.counted(who.ssrc, "packets") > before + 40

    wait_for("it is heard", is_heard, 20)


@pytest.mark.parametrize("new_key", [master(9), master(9, GCM_BYTES)], ids=["srtp", "gcm"])
@pytest.mark.usefixtures("host")
def test_a_new_key_in_the_record_is_accepted_at_once(store: Store, plane: DataPlane, new_key: bytes) -> None:
    """A re-INVITE gives the call another key (RFC 4568, section 7.1.4), and possibly another suite."""
    who = entered(store, plane, 7, KEY)
    who.say(silence(0.4))
    store.do("SET", "srtp:7", text_of(new_key))
    renewed = Caller(plane, who.ssrc, key=new_key)
    renewed.sequence = 7
    before = plane.counted(who.ssrc, "packets")

    def is_heard() -> bool:
        renewed.say(silence(0.4), pace_s=0.02)
        return plane.counted(who.ssrc, "packets") > before + 40

    wait_for("the new key is taken", is_heard, 20)
    before = plane.drops()["unauthenticated"]
    who.sequence += 5000  # sequence numbers that have not arrived yet, and are authenticated
    who.say(silence(0.2))
    wait_for("the old key is refused", lambda: plane.drops()["unauthenticated"] > before)
    assert plane.session(who.ssrc), "it is the same session"


def test_look_ups_of_unknown_senders_are_rate_limited(
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


class Strangers(threading.Thread):
    """Sends packets of unknown sessions until it is stopped.

    Args:
        plane: The program under attack.
        addresses: Source addresses, one packet each.
        repeats: Packets in the name of each session.
    """

    def __init__(self, plane: DataPlane, addresses: Iterator[str], repeats: int = 1) -> None:
        super().__init__(daemon=True)
        self._plane, self._addresses, self._repeats = plane, addresses, repeats
        self._stopping = threading.Event()
        with plane.network.far():
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)

    def run(self) -> None:
        near, port = self._plane.network.near_address, self._plane.port("VOICE_RTP_PORT")
        for count, address in enumerate(self._addresses):
            if count % 20 == 0 and self._stopping.wait(0.004):
                return
            ssrc = (count // self._repeats + 1) * 0x01000193 & 0xFFFFFFFF
            audio = struct.pack(">BBHII", 0x80, 96, count & 0xFFFF, 0, ssrc)
            udp = struct.pack(">HHHH", 40_000, port, 8 + len(audio), 0) + audio
            ends = socket.inet_aton(address) + socket.inet_aton(near)
            # The kernel fills in the identification and the checksum.
            ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, socket.IPPROTO_UDP, 0) + ends
            self._socket.sendto(ip + udp, (near, 0))

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        self._socket.close()


def packets_to_enter(store: Store, plane: DataPlane, ssrc: int) -> int:
    """Return how many packets, one every 20 ms, a new caller sends until one of them is accepted."""
    caller = Caller(plane, ssrc, key=KEY)
    store.open_session(ssrc, srtp_key=text_of(KEY))
    for sent in range(1, 200):
        caller.send(caller.packet(silence(0.02)))
        time.sleep(0.02)
        if plane.session(ssrc):
            return sent
    raise AssertionError(f"not admitted after {sent} packets: {plane.ask('counters')['events']['admission']}")


@pytest.mark.parametrize("flood", ["one address", "one address, twice each", "any address"])
def test_a_flood_of_unknown_senders_does_not_block_callers(
    store: Store, plane: DataPlane, start: Callable[..., AsrHost], flood: str
) -> None:
    start(VOICE_ADMISSIONS_PER_S=50)
    usual = max(packets_to_enter(store, plane, ssrc) for ssrc in range(7, 10))
    network = "127.0" if plane.path == "socket" else "100.64"
    spoofed = (f"{network}.{count >> 8 & 0xFF}.{count & 0xFF}" for count in itertools.count(1))
    addresses = spoofed if flood == "any address" else itertools.repeat(plane.network.other_address)
    strangers = Strangers(plane, addresses, repeats=2 if "twice" in flood else 1)
    strangers.start()
    wait_for("the allowance is used up", lambda: plane.drops()["admission-full"] > 1000)
    entered = sorted(packets_to_enter(store, plane, ssrc) for ssrc in range(10, 15))
    # Four more packets allow for other load on the machine, which a single caller may meet at a worse moment. Without
    # their own share callers need a hundred.
    assert entered[2] <= 2 * usual + 4, entered
    assert entered[-1] <= 50, entered
    strangers.stop()


@pytest.mark.usefixtures("host")
def test_reports_of_unknown_senders_are_not_looked_up(plane: DataPlane, sender: socket.socket) -> None:
    to = (plane.network.near_address, plane.port("VOICE_RTP_PORT"))
    for kind in (200, 201, 202, 203, 204, 207):
        sender.sendto(struct.pack(">BBHIIII", 0x80, kind, 4, 77, 1, 2, 3), to)
    wait_for("they are dropped", lambda: plane.drops()["not-rtp"] == 6)
    time.sleep(0.3)
    assert plane.ask("counters")["events"]["admission"]["refused"] == 0


@pytest.mark.parametrize("key", [b"", KEY, GCM_KEY], ids=["plain", "srtp", "gcm"])
def test_a_commit_ends_the_utterance_but_not_the_session(
    store: Store, plane: DataPlane, host: AsrHost, key: bytes
) -> None:
    who = entered(store, plane, 8, key)
    who.say(silence(4))  # the VAD learns the background noise
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
    who.say(silence(4))  # the VAD learns the background noise
    who.is_taken()
    host.chunks.clear()
    who.say(speech("how can I help you today")[:32_000])
    wait_for("speech is heard", lambda: len(host.of(7)) > 2)
    began = time.monotonic()
    who.send(who.goodbye())
    wait_for("its end", lambda: host.of(7)[-1].flags & (END_OF_SPEECH | LAST) == END_OF_SPEECH | LAST)
    wait_for("the session is gone", lambda: plane.session(7) is None)
    assert time.monotonic() - began < 5
    who.say(silence(0.1))  # was in transit
    time.sleep(0.3)
    assert plane.session(7) is None


def test_a_goodbye_directly_after_a_commit_has_its_own_chunk(store: Store, plane: DataPlane, host: AsrHost) -> None:
    """The engine drops a second chunk with the same sequence as a duplicate."""
    who = entered(store, plane, 7)
    who.say(silence(4))
    who.is_taken()
    for notice in (who.commit(), who.goodbye()):
        who.send(notice)
    wait_for("the last chunk", lambda: bool(host.of(7)) and bool(host.of(7)[-1].flags & LAST))
    commit, last = host.of(7)[-2:]
    assert commit.flags & COMMIT
    assert commit.sequence < last.sequence
