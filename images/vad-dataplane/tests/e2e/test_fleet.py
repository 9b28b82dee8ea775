"""A call that a load balancer moves between three hosts: its audio keeps its timeline."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from audio import silence, speech
from running import AsrHost, Caller, Chunk, DataPlane, Store, frames, wait_for
from srtp import GCM_BYTES, master, text_of

from voice_runtime.chunk import AudioChunk
from voice_whisper.session_audio import DropReason, SessionAudio

pytestmark = pytest.mark.parametrize("path", ["socket"], indirect=True, scope="session")
SSRC = 0x5678
LEG = silence(1) + b"".join(frames(speech("how can I help you today"))) + silence(2)
ON_THE_WAY = 30
"""Frames that may pass before the position of a chunk: jitter buffer, pre-roll and end of an utterance."""


@pytest.fixture
def hosts(store: Store, tmp_path: Path) -> Iterator[list[DataPlane]]:
    """Start three hosts of a fleet."""
    store.do("FLUSHALL")
    port = str(store.free_port(socket.SOCK_DGRAM))
    fleet = []
    for name in ("a", "b", "c"):
        folder = tmp_path / name
        folder.mkdir()
        environment = {"VOICE_HOST": f"i-{name}", "VOICE_CHUNK_PORT": port}
        fleet.append(DataPlane(folder, store, environment=environment))
    yield fleet
    for host in fleet:
        if host.process:
            host.stop()


@pytest.fixture
def ear(store: Store, hosts: list[DataPlane]) -> Iterator[AsrHost]:
    """Start the ASR host that all of them send to."""
    asr = AsrHost(store, hosts[0].port("VOICE_CHUNK_PORT"))
    for host in hosts:
        host.start()
        host.knows_host()
    yield asr
    asr.die()


def legs_of(store: Store, hosts: list[DataPlane], ear: AsrHost, key: bytes) -> Iterator[tuple[range, list[Chunk]]]:
    """Let a caller speak to each host in turn and then to the first again; yield positions and chunks of each leg."""
    who = Caller(hosts[0], SSRC, key=key)
    store.open_session(SSRC, srtp_key=text_of(key))
    first = None
    for host in (*hosts, hosts[0]):
        before = len(ear.of(SSRC))
        who.reach(host)
        who.move()
        who.enter()
        first = who.first if first is None else first
        start = who.sequence
        who.say(LEG)
        who.has_stopped()
        yield range(start - first, who.sequence - first), ear.of(SSRC)[before:]
        for field in ("begins_at", "chunks"):
            wait_for(f"{field} is written", lambda field=field: store.field(SSRC, field) >= 0)  # type: ignore[misc]


@pytest.mark.parametrize("size", [30, GCM_BYTES], ids=["aes-cm", "aes-gcm"])
def test_media_time_continues_on_another_host(store: Store, hosts: list[DataPlane], ear: AsrHost, size: int) -> None:
    for sent, chunks in legs_of(store, hosts, ear, master(1, size)):
        places = [chunk.sequence for chunk in chunks]
        assert places, "it was heard"
        assert places == sorted(set(places))
        assert sent.start - ON_THE_WAY <= places[0] <= places[-1] <= sent.stop + ON_THE_WAY


def test_an_engine_accepts_all_audio_of_a_moved_call(store: Store, hosts: list[DataPlane], ear: AsrHost) -> None:
    """The receiver is the engine's own: it drops chunks at positions that it has already finished."""
    audio, now = SessionAudio(), 0.0
    for _, chunks in legs_of(store, hosts, ear, master(2)):
        taken = [audio.add(AudioChunk.parse(chunk.datagram), now) for chunk in chunks]
        assert taken
        assert not [each for each in taken if isinstance(each, DropReason)]
        now += 60
        assert audio.pop_finished(now)


def test_an_address_change_loses_packets_until_the_record_is_read(
    store: Store, hosts: list[DataPlane], ear: AsrHost
) -> None:
    key = master(3)
    who = Caller(hosts[0], SSRC, key=key)
    store.open_session(SSRC, srtp_key=text_of(key))
    who.enter()
    who.say(LEG)
    who.has_stopped()
    wait_for("where it begins is written", lambda: store.field(SSRC, "begins_at") >= 0)
    before, start, first = len(ear.of(SSRC)), who.sequence, who.first
    who.reach(hosts[1])
    who.move(hosts[1].network.other_address)
    who.say(LEG, pace_s=0.02)
    drops = hosts[1].drops()
    lost = drops["unknown-session"]
    print(f"{lost} of {who.sequence - start} packets of 20 ms came before the new host had read the record")
    who.sent = who.sequence - start - lost
    who.has_stopped()
    assert sum(hosts[1].drops().values()) == lost, hosts[1].drops()
    places = [chunk.sequence for chunk in ear.of(SSRC)[before:]]
    assert start - first - ON_THE_WAY <= places[0] <= places[-1] <= who.sequence - first + ON_THE_WAY
