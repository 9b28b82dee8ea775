"""Timeline and utterances when packets are missing."""

import struct
import time

import pytest
from audio import silence, speech
from running import CONCEALED, END_OF_SPEECH, START_OF_SPEECH, AsrHost, Caller, DataPlane, frames, wait_for

pytestmark = pytest.mark.parametrize("path", ["socket", "af_xdp"], indirect=True, scope="session")
FRAMES_PER_S = 50
TORN = END_OF_SPEECH | CONCEALED
NOT_ONE_EACH = 10
"""Frames filled in. When a busy machine pauses for a third of a second during speech, the program fills in five."""
TALK = b"".join(frames(speech("how can I help you today")[:32_000]))
"""Return one second from the middle of a sentence."""


@pytest.fixture
def caller(caller: Caller, host: AsrHost) -> Caller:
    """Open a session whose background noise the VAD has learned."""
    caller.say(silence(4))
    caller.is_taken()
    host.chunks.clear()
    return caller


def test_speech_ends_soon_after_its_sender_stops(caller: Caller, host: AsrHost) -> None:
    caller.say(TALK)
    wait_for("it is heard", lambda: len(host.of(caller.ssrc)) > 2)
    stopped = time.monotonic()
    wait_for("its end", lambda: host.of(caller.ssrc)[-1].flags & TORN == TORN, 10)
    assert time.monotonic() - stopped < 3, "half a second, on a machine that may be busy"


def test_lost_time_does_not_shift_later_audio(plane: DataPlane, caller: Caller, host: AsrHost) -> None:
    before = plane.counted(caller.ssrc, "concealed")
    caller.say(TALK)
    wait_for("it is heard", lambda: len(host.of(caller.ssrc)) > 2)
    gap = 2 * FRAMES_PER_S
    caller.sequence += gap
    resumed = caller.sequence
    caller.say(speech() + silence(3))
    caller.is_taken()
    place = resumed - caller.first
    before_gap = [chunk for chunk in host.of(caller.ssrc) if chunk.sequence < place]
    after_gap = [chunk for chunk in host.of(caller.ssrc) if chunk.sequence >= place]
    assert before_gap[-1].sequence < place - gap + 10
    assert before_gap[-1].flags & TORN == TORN, "it was torn"
    assert after_gap[0].flags & START_OF_SPEECH
    assert after_gap[0].sequence - place < FRAMES_PER_S, "as long after the first words as they were said"
    assert plane.counted(caller.ssrc, "concealed") > before


def test_a_pause_without_packets_is_not_a_loss(plane: DataPlane, caller: Caller) -> None:
    """Discontinuous transmission: sequence numbers continue, and timestamps show how long nothing was sent."""
    lost = plane.counted(caller.ssrc, "concealed")
    said = list(frames(speech()))
    for at in range(0, len(said), 25):
        caller.say(b"".join(said[at : at + 25]))
        caller.pause(6)
    caller.is_taken()
    assert plane.counted(caller.ssrc, "concealed") - lost < NOT_ONE_EACH


def test_time_continues_in_a_pause_without_packets(caller: Caller, host: AsrHost) -> None:
    caller.say(speech() + silence(1))
    caller.is_taken()
    before = host.of(caller.ssrc)[-1].sequence
    caller.pause(10 * FRAMES_PER_S)
    caller.say(speech())
    wait_for("it is heard", lambda: host.of(caller.ssrc)[-1].sequence - before >= 10 * FRAMES_PER_S)


def test_a_pause_of_over_a_minute_does_not_shift_later_audio(caller: Caller, host: AsrHost) -> None:
    """A sender may pause its audio and send only RTCP or comfort noise, as while a call is on hold."""
    caller.say(speech() + silence(1))
    caller.is_taken()
    before = host.of(caller.ssrc)[-1].sequence
    caller.pause(70 * FRAMES_PER_S)
    caller.say(speech() + silence(1))
    caller.is_taken()
    assert host.of(caller.ssrc)[-1].sequence - before >= 70 * FRAMES_PER_S


@pytest.mark.parametrize("payload_type", [13, 101])
def test_packets_without_audio_are_not_a_loss(plane: DataPlane, caller: Caller, payload_type: int) -> None:
    """Comfort noise (RFC 3389) and telephone events (RFC 4733) share the audio's sequence numbers."""
    lost = plane.counted(caller.ssrc, "concealed")
    for frame in frames(speech() + silence(1)):
        if caller.sequence % 10 == 0:
            head = struct.pack(">BBHII", 0x80, payload_type, caller.sequence, caller.sequence * 320, caller.ssrc)
            caller.send(head + bytes(4))
            caller.sequence += 1
        caller.send(caller.packet(frame))
        time.sleep(0.002)
    caller.is_taken()
    assert plane.counted(caller.ssrc, "concealed") - lost < NOT_ONE_EACH
    assert plane.drops()["not-rtp"] == 0


def test_late_packets_do_not_replay_audio(plane: DataPlane, caller: Caller) -> None:
    before = plane.ask("counters")["vad"]["frames"]
    packets = [caller.packet(frame) for frame in frames(silence(3))]
    for packet in packets:
        caller.send(packet)
        time.sleep(0.002)
    for packet in packets[-25:-20] + packets[-90:-85]:  # 400 ms and almost two seconds
        caller.send(packet)
    caller.is_taken()
    assert plane.ask("counters")["events"]["packets"]["restarts"] == 0
    assert plane.ask("counters")["vad"]["frames"] - before <= len(packets), "each is heard once"
