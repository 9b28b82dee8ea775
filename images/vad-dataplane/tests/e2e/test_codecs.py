"""What telephones send: each codec, rate, packet time and number of channels, from ffmpeg where it can be."""

import struct
import time

import ffmpeg
import numpy as np
import pytest
from audio import silence, speech
from running import FRAME_SAMPLES, AsrHost, Caller, Chunk, DataPlane, Store, frames, wait_for
from srtp import master, text_of

from voice_runtime.media import Media

pytestmark = pytest.mark.parametrize("path", ["socket"], indirect=True, scope="session")
KEY = master(3)
SSRC = 0x1234
MEDIA = [
    ("0 PCMU/8000/1 20", b""),
    ("0 PCMU/8000/1 60", KEY),
    ("8 PCMA/8000/1 30", b""),
    ("8 PCMA/8000/1 20", KEY),
    ("96 L16/8000/2 40", b""),
    ("97 L16/16000/1 10", KEY),
    ("11 L16/44100/1 10", b""),
    ("96 L16/48000/1 15", KEY),
    ("111 opus/48000/2 20", b""),
    ("111 opus/48000/2 60", KEY),
]


def likeness(chunks: list[Chunk], said: bytes) -> float:
    """Return how much chunks sound like what was said, 1 at most, whatever the delay between them."""
    second = np.frombuffer(said, np.int16).astype(float)
    first = np.zeros((max(chunk.sequence for chunk in chunks) + 6) * FRAME_SAMPLES)
    for chunk in chunks:
        at = chunk.sequence * FRAME_SAMPLES
        first[at : at + chunk.count] = np.frombuffer(chunk.payload[: 2 * chunk.count], np.int16)
    size = 1 << (len(first) + len(second)).bit_length()
    both = np.fft.irfft(np.fft.rfft(first, size) * np.conj(np.fft.rfft(second, size)), size)
    return float(both.max() / np.sqrt((first**2).sum() * (second**2).sum()))


@pytest.mark.parametrize(("media", "key"), MEDIA, ids=[f"{media} {'srtp' if key else 'plain'}" for media, key in MEDIA])
def test_what_ffmpeg_sends_is_heard(store: Store, plane: DataPlane, media: str, key: bytes) -> None:
    plane.environment["VOICE_CHUNK_KIND"] = "pcm16"
    host = AsrHost(store, plane.port("VOICE_CHUNK_PORT"))
    plane.start()
    plane.knows_host()
    store.open_session(SSRC, srtp_key=text_of(key) if key else None, media=media)
    Caller(plane, SSRC, key=key).enter()
    before = plane.drops()
    said = speech()
    ffmpeg.send(plane, SSRC, Media.of(media), silence(4) + said + silence(2), key=text_of(key) if key else "")
    wait_for("the end of the utterance", lambda: host.has_ended(SSRC), 10)
    host.die()
    assert plane.drops() == before, "every packet was taken"
    assert plane.counted(SSRC, "concealed") == 0
    assert likeness(host.of(SSRC), said) > 0.8


def test_what_was_not_described_is_counted_and_not_heard(store: Store, plane: DataPlane, host: AsrHost) -> None:
    """As much as 20 ms of L16 has each of them: PCMU of 80 ms, stereo of 10 ms, 8 kHz of 40 ms."""
    who = Caller(plane, SSRC)
    store.open_session(SSRC)
    who.enter()
    before = plane.ask("counters")["vad"]["frames"]
    others = [(0, 640), (10, 640), (97, 640), (8, 160), (9, 160), (96, 320), (96, 638), (96, 0), (127, 3)]
    for payload_type, size in others:
        head = struct.pack(">BBHII", 0x80, payload_type, who.sequence, who.timestamp, SSRC)
        who.send(head + bytes(size))
        who.sequence += 1
    wait_for("they are counted", lambda: plane.drops()["wrong-payload"] == len(others))
    assert plane.drops()["not-rtp"] == 0
    assert plane.ask("counters")["vad"]["frames"] == before
    assert not host.of(SSRC)


def test_losses_of_a_telephone_are_made_up_and_marked(store: Store, plane: DataPlane, host: AsrHost) -> None:
    who = Caller(plane, SSRC)
    store.open_session(SSRC, media="96 L16/8000/1 40")
    who.enter()
    for n, frame in enumerate(frames(silence(1) + speech() + silence(2))):
        if n % 25 not in (20, 21):
            head = struct.pack(">BBHII", 0x80, 96, 100 + n, n * 320, SSRC)
            who.send(head + np.frombuffer(frame, np.int16).astype(">i2").tobytes())
        time.sleep(0.002)
    wait_for("its losses are counted", lambda: plane.counted(SSRC, "concealed") >= 4)
    wait_for("it is heard", lambda: host.has_ended(SSRC))
