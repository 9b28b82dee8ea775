"""From RTP to chunks, on each data path.

Some kernels lack sch_netem, so the sender itself drops and reorders packets.
"""

import itertools
import shutil
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from audio import silence, speech
from running import CONCEALED, END_OF_SPEECH, START_OF_SPEECH, AsrHost, Caller, DataPlane, Store, frames, wait_for
from srtp import GCM_BYTES, master, text_of

from tests.nonempty import nonempty

EVERY_PATH = pytest.mark.parametrize("path", ["socket", "af_packet", "af_xdp"], indirect=True, scope="session")


@EVERY_PATH
def test_speech_arrives_and_silence_does_not(caller: Caller, host: AsrHost) -> None:
    caller.say(silence(4))  # the VAD learns the background noise
    caller.is_taken()
    host.chunks.clear()
    caller.say(silence(2) + speech() + silence(3))
    caller.is_taken()
    wait_for("the end of the utterance", lambda: host.has_ended(caller.ssrc))
    chunks = host.of(caller.ssrc)
    assert chunks[0].flags & START_OF_SPEECH
    assert all(chunk.kind == 1 and chunk.count <= 10 for chunk in chunks)
    shipped_s = sum(chunk.count for chunk in chunks) / 100
    speech_s = len(speech()) / 32_000
    assert speech_s * 0.7 < shipped_s < speech_s + 2.5, (
        "all of the sentence, less than half of the five seconds of silence"
    )


def test_chunks_of_an_utterance_are_consecutive(caller: Caller, host: AsrHost) -> None:
    caller.say(speech() + silence(3))
    wait_for("the end of the utterance", lambda: host.has_ended(caller.ssrc))
    chunks = host.of(caller.ssrc)
    for before, chunk in nonempty(itertools.pairwise(chunks)):
        if not chunk.flags & START_OF_SPEECH:
            # Five frames each; an end without a frame has the position of the last one.
            assert chunk.sequence - before.sequence in ({4, 5} if chunk.flags & END_OF_SPEECH else {5})


@EVERY_PATH
def test_an_unknown_sender_is_looked_up_and_dropped(plane: DataPlane, host: AsrHost) -> None:
    who = Caller(plane, 99)

    def is_blocked() -> bool:
        who.say(speech("no"))
        return plane.drops()["blocked"] > 0

    wait_for("it is blocked", is_blocked)
    assert plane.drops()["unknown-session"] > 0
    assert not host.of(99)
    assert plane.ask("counters")["events"]["admission"]["refused"] == 1


@EVERY_PATH
def test_invalid_packets_are_counted_and_dropped(plane: DataPlane, caller: Caller, host: AsrHost) -> None:
    good = caller.packet(next(frames(speech())))
    for bad in (b"", b"x", good[:11], b"\x00" + good[1:], b"\xff" * 1500, b"\xbf" + good[1:20], b"x" * 9000):
        caller.send(bad)
    wait_for("it is counted", lambda: plane.drops()["not-rtp"] >= 5)
    caller.say(speech() + silence(2))
    wait_for("audio still flows", lambda: bool(host.of(caller.ssrc)))


def test_lost_and_swapped_packets_are_repaired(plane: DataPlane, caller: Caller, host: AsrHost) -> None:
    packets = [caller.packet(frame) for frame in frames(speech() + silence(3))]
    lost = range(30, len(packets) - 5, 50)  # 2 %
    for at in range(10, len(packets) - 1, 15):
        packets[at], packets[at + 1] = packets[at + 1], packets[at]
    for at, packet in enumerate(packets):
        if at not in lost:
            caller.send(packet)
            time.sleep(0.002)
    wait_for("the end of the utterance", lambda: host.has_ended(caller.ssrc))
    caller.is_taken()
    found = plane.session(caller.ssrc)
    assert found
    assert found["concealed"] == len(lost)
    assert plane.drops()["late"] == 0
    chunks = host.of(caller.ssrc)
    assert any(chunk.flags & CONCEALED for chunk in chunks)
    shipped = sum(chunk.count for chunk in chunks)
    places = [chunk.sequence for chunk in chunks]
    assert places == sorted(set(places))
    assert shipped >= 0.7 * len(speech()) / 320, "what is lost is filled in, so that the rest keeps its time"


@pytest.mark.parametrize("key_bytes", [30, GCM_BYTES])
def test_srtp_requires_the_right_key_and_rejects_replays(
    store: Store, plane: DataPlane, host: AsrHost, key_bytes: int
) -> None:
    right, wrong = master(1, key_bytes), master(2, key_bytes)
    who = Caller(plane, 7, key=right)
    store.open_session(who.ssrc, srtp_key=text_of(right))
    who.enter()
    before = plane.drops()

    def refused(since: dict[str, int], *reasons: str) -> int:
        drops = plane.drops()
        return sum(drops[reason] - since[reason] for reason in reasons)

    thief = Caller(plane, who.ssrc, key=wrong)
    thief.sequence = who.sequence
    thief.say(speech()[:32_000])
    wait_for("each is refused", lambda: refused(before, "unauthenticated", "rate-limited") == 50)
    kept = [who.packet(frame) for frame in frames(speech() + silence(2))]
    for packet in kept:
        who.send(packet)
        time.sleep(0.002)
    wait_for("the end of the utterance", lambda: host.has_ended(who.ssrc))
    for packet in kept[-20:]:
        who.send(packet)
    wait_for("each replay is refused", lambda: refused(before, "replay") == 20)
    before = plane.drops()
    plain = Caller(plane, who.ssrc)
    plain.sequence = who.sequence
    plain.say(silence(0.2))
    wait_for("so is plain RTP", lambda: refused(before, "unauthenticated", "rate-limited") == 10)


def test_a_session_ends_when_it_expires(store: Store, plane: DataPlane, caller: Caller) -> None:
    short = Caller(plane, 8)
    store.open_session(short.ssrc, seconds=4)
    short.enter()
    wait_for("it is gone", lambda: plane.session(short.ssrc) is None)
    assert plane.session(caller.ssrc), "others stay"
    assert plane.ask("counters")["events"]["admission"]["expired"] == 1


def test_a_thousand_sessions_are_served(store: Store, plane: DataPlane, host: AsrHost, sender: socket.socket) -> None:
    callers = [Caller(plane, ssrc, sender=sender) for ssrc in range(1000, 2000)]
    for who in callers:
        store.open_session(who.ssrc)
    sounding = list(frames(speech()))[:100]

    def has_admitted_all() -> bool:
        for who in callers:
            who.send(who.packet(sounding[0]))
        found: int = plane.ask("status")["sessions"]
        return found == len(callers)

    wait_for("all are in", has_admitted_all)
    for frame in sounding:
        for at, who in enumerate(callers):
            who.send(who.packet(frame))
            if at % 100 == 0:
                time.sleep(0.005)
    wait_for("all are heard", lambda: len({chunk.session for chunk in host.chunks}) == len(callers))


def test_the_module_is_replaced_during_calls(
    store: Store, plane: DataPlane, host: AsrHost, sender: socket.socket
) -> None:
    callers = [Caller(plane, ssrc, sender=sender) for ssrc in range(100, 120)]
    for who in callers:
        store.open_session(who.ssrc)
        who.enter()
    first = Path(plane.environment["VOICE_VAD_MODULE"])
    modules = [Path(shutil.copy(first, first.with_name(name))) for name in ("a.so", "b.so")]
    said = list(frames(speech() + silence(3)))
    # Callers do not wait for a swap: 350 ms of silence would end their utterances.
    with ThreadPoolExecutor(1) as swapping:
        for at, frame in enumerate(said):
            for who in callers:
                who.send(who.packet(frame))
            time.sleep(0.005)
            if at % (len(said) // 4) == 1:
                swapping.submit(plane.ask, "swap-vad", module=str(modules[at % 2]))
    wait_for("all utterances have ended", lambda: all(host.has_ended(who.ssrc) for who in callers))
    for who in callers:
        who.is_taken()
        found = plane.session(who.ssrc)
        assert found
        assert found["concealed"] == 0
    assert plane.ask("status")["vad_module"] in map(str, modules)


@pytest.mark.usefixtures("host")
def test_a_module_that_is_invalid_is_refused_and_the_old_one_stays(plane: DataPlane, tmp_path: Path) -> None:
    first = Path(plane.environment["VOICE_VAD_MODULE"])
    rubbish = first.with_name("rubbish.so")
    rubbish.write_text("no module")
    elsewhere = Path(shutil.copy(first, tmp_path / "elsewhere.so"))
    anybodys = Path(shutil.copy(first, first.with_name("anybodys.so")))
    anybodys.chmod(0o666)
    for module, reason in ((rubbish, "rubbish"), (elsewhere, f"is not in {first.parent}"), (anybodys, "chmod go-w")):
        with pytest.raises(AssertionError, match=reason):
            plane.ask("swap-vad", module=str(module))
    assert plane.ask("status")["vad_module"] == str(first)


def test_a_drain_ends_with_the_last_session(store: Store, plane: DataPlane, host: AsrHost) -> None:
    who = Caller(plane, 5)
    store.open_session(who.ssrc, seconds=6)
    who.enter()
    plane.connect().close()
    assert plane.process
    plane.process.terminate()
    wait_for("it says so", lambda: plane.ask("status")["state"] == "draining")
    with pytest.raises(ConnectionRefusedError):
        plane.connect()
    who.say(speech())
    assert plane.process.wait(60) == 0
    assert host.of(who.ssrc), "who was in has been heard to the end"


@pytest.mark.parametrize("path", ["socket"], indirect=True, scope="session")
@pytest.mark.parametrize(
    ("variable", "value"), [("VOICE_RX_QUEUES", "0"), ("VOICE_RTP_PORT", "http"), ("VOICE_VAD_MODULE", "/no/such.so")]
)
def test_invalid_settings_are_rejected_with_a_message(plane: DataPlane, variable: str, value: str) -> None:
    plane.environment[variable] = value
    with pytest.raises(AssertionError, match=r"exit code [12]: vad-dataplane: ") as refused:
        plane.start()
    assert value in str(refused.value)
