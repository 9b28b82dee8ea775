"""From RTP to chunks through ordinary sockets: what needs no privileges and no interface of its own."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from audio import silence, speech
from running import LOOPBACK, AsrHost, Caller, DataPlane, Store, frames, wait_for

END_OF_SPEECH, CONCEALED, START_OF_SPEECH = 1, 2, 4
SSRC = 0x1234


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    server = Store(tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture
def plane(store: Store, tmp_path: Path) -> Iterator[DataPlane]:
    store.do("FLUSHALL")
    data_plane = DataPlane(tmp_path, store)
    yield data_plane
    if data_plane.process:
        data_plane.stop()


@pytest.fixture
def host(store: Store, plane: DataPlane) -> Iterator[AsrHost]:
    asr = AsrHost(store, plane.port("VOICE_CHUNK_PORT"))
    plane.start()
    wait_for("the host is known", lambda: plane.ask("counters")["registry"]["hosts"] == 1)
    yield asr
    asr.stop()


def caller(plane: DataPlane, ssrc: int = SSRC) -> Caller:
    return Caller(ssrc, (LOOPBACK, plane.port("VOICE_RTP_PORT")))


def admitted(plane: DataPlane, who: Caller) -> None:
    """Send silence until the session is in."""

    def is_in() -> bool:
        who.say(silence(0.1))
        return any(session["ssrc"] == who.ssrc for session in plane.ask("sessions"))

    wait_for("the session is admitted", is_in)


def drops(plane: DataPlane) -> dict[str, int]:
    found: dict[str, int] = plane.ask("counters")["drops"]
    return found


def test_speech_arrives_and_silence_does_not(store: Store, plane: DataPlane, host: AsrHost) -> None:
    store.open_session(SSRC)
    who = caller(plane)
    admitted(plane, who)
    who.say(silence(4))
    time.sleep(0.5)
    host.chunks.clear()
    said = silence(2) + speech() + silence(3)
    who.say(said)
    wait_for("the end of the utterance", lambda: any(c.flags & END_OF_SPEECH for c in host.of(SSRC)))
    time.sleep(0.5)
    chunks = host.of(SSRC)
    assert chunks[0].flags & START_OF_SPEECH
    assert all(chunk.kind == 1 and chunk.count <= 10 for chunk in chunks)
    shipped_s = sum(chunk.count for chunk in chunks) / 100
    speech_s = len(speech()) / 32_000
    assert speech_s * 0.7 < shipped_s < speech_s + 2.5, (
        "all of the sentence, less than half of the five seconds of silence"
    )


def test_an_utterances_chunks_follow_each_other(store: Store, plane: DataPlane, host: AsrHost) -> None:
    store.open_session(SSRC)
    who = caller(plane)
    admitted(plane, who)
    who.say(speech() + silence(3))
    wait_for("the end of the utterance", lambda: any(c.flags & END_OF_SPEECH for c in host.of(SSRC)))
    expected = None
    for chunk in host.of(SSRC):
        if expected is not None and not chunk.flags & START_OF_SPEECH:
            assert chunk.sequence == expected
        expected = chunk.sequence + min(5, (chunk.count + 1) // 2) if chunk.count else None


def test_an_unknown_sender_is_asked_about_and_dropped(plane: DataPlane, host: AsrHost) -> None:
    who = caller(plane, ssrc=99)

    def is_blocked() -> bool:
        who.say(speech("no"))
        return drops(plane)["blocked"] > 0

    wait_for("it is blocked", is_blocked)
    assert drops(plane)["unknown-session"] > 0
    assert not host.of(99)
    assert plane.ask("counters")["admission"]["refused"] == 1


def test_rubbish_is_counted_and_harms_nobody(store: Store, plane: DataPlane, host: AsrHost) -> None:
    store.open_session(SSRC)
    who = caller(plane)
    admitted(plane, who)
    good = who.packet(next(frames(speech())))
    for bad in (b"", b"x", good[:11], b"\x00" + good[1:], b"\xff" * 1500, b"\xbf" + good[1:20], b"x" * 9000):
        who.send(bad)
    wait_for("it is counted", lambda: drops(plane)["not-rtp"] >= 5)
    who.say(speech() + silence(2))
    wait_for("audio still flows", lambda: bool(host.of(SSRC)))


def test_lost_and_swapped_packets_are_repaired(store: Store, plane: DataPlane, host: AsrHost) -> None:
    store.open_session(SSRC)
    who = caller(plane)
    admitted(plane, who)
    packets = [who.packet(frame) for frame in frames(speech() + silence(3))]
    for at in range(10, len(packets) - 1, 15):
        packets[at], packets[at + 1] = packets[at + 1], packets[at]
    kept = [packet for at, packet in enumerate(packets) if at % 50 != 30]
    for packet in kept:
        who.send(packet)
        time.sleep(0.002)
    wait_for("the end of the utterance", lambda: any(c.flags & END_OF_SPEECH for c in host.of(SSRC)))
    (session,) = [each for each in plane.ask("sessions") if each["ssrc"] == SSRC]
    assert session["concealed"] == len(packets) - len(kept)
    assert any(chunk.flags & CONCEALED for chunk in host.of(SSRC))
    assert drops(plane)["late"] == 0


@pytest.mark.usefixtures("host")
def test_a_session_ends_when_its_time_is_over(store: Store, plane: DataPlane) -> None:
    store.open_session(SSRC, seconds=3)
    who = caller(plane)
    admitted(plane, who)
    wait_for("it is gone", lambda: plane.ask("status")["sessions"] == 0)


def test_a_thousand_sessions(store: Store, plane: DataPlane, host: AsrHost) -> None:
    ssrcs = range(1000, 2000)
    for ssrc in ssrcs:
        store.open_session(ssrc)
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    callers = [Caller(ssrc, (LOOPBACK, plane.port("VOICE_RTP_PORT")), sender) for ssrc in ssrcs]
    frame = next(frames(speech()))

    def all_in() -> bool:
        for who in callers:
            who.send(who.packet(frame))
            time.sleep(0.0002)
        found: int = plane.ask("status")["sessions"]
        return found == len(callers)

    wait_for("all are in", all_in, 60)
    for sounding in list(frames(speech()))[:100]:
        for who in callers:
            who.send(who.packet(sounding))
        time.sleep(0.1)
    wait_for("all are heard", lambda: len({chunk.session for chunk in host.chunks}) == len(callers), 60)


def test_the_module_is_swapped_while_people_speak(
    store: Store, plane: DataPlane, host: AsrHost, tmp_path: Path
) -> None:
    store.open_session(SSRC)
    who = caller(plane)
    admitted(plane, who)
    other = tmp_path / "other.so"
    other.write_bytes(Path(plane.environment["VOICE_VAD_MODULE"]).read_bytes())
    packets = [who.packet(frame) for frame in frames(speech() + silence(3))]
    for at, packet in enumerate(packets):
        who.send(packet)
        time.sleep(0.002)
        if at == len(packets) // 3:
            plane.ask("swap-vad", module=str(other))
    wait_for("the end of the utterance", lambda: any(c.flags & END_OF_SPEECH for c in host.of(SSRC)))
    assert plane.ask("status")["vad_module"] == str(other)
    (session,) = [each for each in plane.ask("sessions") if each["ssrc"] == SSRC]
    assert session["concealed"] == 0


@pytest.mark.usefixtures("host")
def test_a_module_that_is_none_is_refused_and_the_old_one_stays(plane: DataPlane, tmp_path: Path) -> None:
    rubbish = tmp_path / "rubbish.so"
    rubbish.write_text("no module")
    with pytest.raises(AssertionError, match="rubbish"):
        plane.ask("swap-vad", module=str(rubbish))
    assert plane.ask("status")["vad_module"] == plane.environment["VOICE_VAD_MODULE"]


def test_a_drain_ends_when_the_last_session_has(store: Store, plane: DataPlane, host: AsrHost) -> None:
    store.open_session(SSRC, seconds=4)
    who = caller(plane)
    admitted(plane, who)
    with socket.create_connection((LOOPBACK, plane.port("VOICE_HEALTH_PORT")), 2):
        pass
    assert plane.process
    plane.process.terminate()
    wait_for("it says so", lambda: plane.ask("status")["state"] == "draining")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, plane.port("VOICE_HEALTH_PORT")), 2)
    who.say(speech())
    assert plane.process.wait(20) == 0
    assert host.of(SSRC), "who was in has been heard to the end"


def test_another_host_takes_over_when_one_dies(store: Store, plane: DataPlane, host: AsrHost) -> None:
    store.open_session(SSRC)
    who = caller(plane)
    admitted(plane, who)
    who.say(speech() + silence(2))
    wait_for("it is heard", lambda: bool(host.of(SSRC)))
    host.stop()
    store.do("DEL", "host:asr:asr-1")
    second = AsrHost(store, plane.port("VOICE_CHUNK_PORT"), name="asr-2", kind="gpu")

    def is_heard() -> bool:
        who.say(speech() + silence(1))
        return bool(second.of(SSRC))

    wait_for("the other host hears it", is_heard, 30)
    second.stop()


@pytest.mark.parametrize(
    ("variable", "value"), [("VOICE_RX_QUEUES", "0"), ("VOICE_RTP_PORT", "http"), ("VOICE_VAD_MODULE", "/no/such.so")]
)
def test_bad_settings_are_refused_with_an_answer(plane: DataPlane, variable: str, value: str) -> None:
    plane.environment[variable] = value
    with pytest.raises(AssertionError, match=r"exit code [12]: vad-dataplane: ") as refused:
        plane.start()
    assert value in str(refused.value)
