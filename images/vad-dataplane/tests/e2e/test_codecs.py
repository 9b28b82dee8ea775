"""Telephone media: each codec, rate, packet duration and number of channels, from ffmpeg where possible."""

import struct
import time

import ffmpeg
import numpy as np
import pytest
from audio import silence, speech
from opus import NOT_SENT_BYTES, Encoder, has_copy
from running import CONCEALED, SAMPLES_PER_FRAME, AsrHost, Caller, Chunk, DataPlane, Store, frames, wait_for
from srtp import master, text_of

from voice_runtime.media import MediaFormat

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
    """Return the similarity of chunks to the original speech, 1 at most, independent of the delay."""
    second = np.frombuffer(said, np.int16).astype(float)
    first = np.zeros((max(chunk.sequence for chunk in chunks) + 6) * SAMPLES_PER_FRAME)
    for chunk in chunks:
        at = chunk.sequence * SAMPLES_PER_FRAME
        first[at : at + chunk.count] = np.frombuffer(chunk.payload[: 2 * chunk.count], np.int16)
    size = 1 << (len(first) + len(second)).bit_length()
    both = np.fft.irfft(np.fft.rfft(first, size) * np.conj(np.fft.rfft(second, size)), size)
    return float(both.max() / np.sqrt((first**2).sum() * (second**2).sum()))


@pytest.mark.parametrize(("media", "key"), MEDIA, ids=[f"{media} {'srtp' if key else 'plain'}" for media, key in MEDIA])
def test_audio_from_ffmpeg_is_accepted(store: Store, plane: DataPlane, media: str, key: bytes) -> None:
    plane.environment["VOICE_CHUNK_KIND"] = "pcm16"
    host = AsrHost(store, plane.port("VOICE_CHUNK_PORT"))
    plane.start()
    plane.knows_host()
    store.open_session(SSRC, srtp_key=text_of(key) if key else None, media=media)
    caller = Caller(plane, SSRC, key=key)
    caller.enter()
    before = plane.settled_drops()
    said = speech()
    # From a known port: of an unknown one, the data plane takes 50 packets until it has authenticated the first.
    secret, port = text_of(key) if key else "", caller.leave()
    ffmpeg.send(plane, SSRC, MediaFormat.parse(media), silence(4) + said + silence(2), key=secret, port=port)
    wait_for("the end of the utterance", lambda: host.has_ended(SSRC), 10)
    assert plane.drops() == before, "every packet was taken"
    assert plane.counted(SSRC, "concealed") == 0
    caller.has_stopped()
    chunks = host.of(SSRC)
    host.die()
    assert likeness(chunks, said) > 0.8, plane.drops()


def test_undescribed_packets_are_counted_and_dropped(store: Store, plane: DataPlane, host: AsrHost) -> None:
    """Each packet has the payload size of 20 ms of L16: PCMU of 80 ms, stereo of 10 ms, 8 kHz of 40 ms."""
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
    assert plane.counted(SSRC, "wrong_payload") == len(others)
    wait_for("its gateway can tell it", lambda: store.field(SSRC, "wrong_payload") == len(others))


def test_another_codec_in_the_record_is_accepted_at_once(store: Store, plane: DataPlane, host: AsrHost) -> None:
    """A re-INVITE may change a call's codec, which has its own clock."""
    who = Caller(plane, SSRC)
    store.open_session(SSRC)
    who.enter()
    who.say(silence(4) + speech() + silence(2))
    wait_for("it is heard", lambda: host.has_ended(SSRC))
    who.has_stopped()
    before, last = len(host.of(SSRC)), host.of(SSRC)[-1].sequence
    store.do("HSET", f"session:{SSRC}", "media", "0 PCMU/8000/1 20")
    sequence, code = 40_000, np.full(160, 0xFF, np.uint8).tobytes()
    taken = plane.counted(SSRC, "packets") - plane.counted(SSRC, "wrong_payload")

    def is_taken() -> bool:
        nonlocal sequence
        for _ in range(20):
            who.send(struct.pack(">BBHII", 0x80, 0, sequence, sequence * 160, SSRC) + code)
            sequence += 1
            time.sleep(0.01)
        return plane.counted(SSRC, "packets") - plane.counted(SSRC, "wrong_payload") > taken + 20

    wait_for("the new codec is taken", is_taken, 20)
    samples = np.frombuffer(speech(), np.int16)[::2]
    for at in range(0, len(samples) - 160, 160):
        who.send(struct.pack(">BBHII", 0x80, 0, sequence, sequence * 160, SSRC) + mu_law(samples[at : at + 160]))
        sequence += 1
        time.sleep(0.004)
    wait_for("it is heard", lambda: len(host.of(SSRC)) > before + 5)
    assert host.of(SSRC)[before].sequence > last


def mu_law(samples: "np.ndarray[tuple[int], np.dtype[np.int16]]") -> bytes:
    """Encode samples as G.711 does, by its formula."""
    level = np.sign(samples) * np.log1p(255 * np.abs(samples.astype(float)) / 32768) / np.log1p(255)
    code = np.minimum(np.abs(level) * 128, 127).astype(np.uint8)
    return bytes((~(code | np.where(level < 0, 0x80, 0).astype(np.uint8))).tobytes())


def test_lost_opus_is_decoded_from_its_copy(store: Store, plane: DataPlane) -> None:
    """In-band forward error correction: each packet holds a copy of the previous frame (RFC 6716, section 2.1.7)."""
    plane.environment["VOICE_CHUNK_KIND"] = "pcm16"
    host = AsrHost(store, plane.port("VOICE_CHUNK_PORT"))
    plane.start()
    plane.knows_host()
    store.open_session(SSRC, media="111 opus/48000/2 20")
    who = Caller(plane, SSRC)
    who.enter()
    said = b"".join(frames(speech()))
    packets = list(Encoder(copies=True).encode(silence(4) + said + silence(2)))
    lost: list[int] = []
    for n, payload in enumerate(packets):
        if n % 5 == 0 and has_copy(packets[min(n + 1, len(packets) - 1)]):
            lost.append(n)
        else:
            who.send(struct.pack(">BBHII", 0x80, 111, 5000 + n, n * 960, SSRC) + payload)
        time.sleep(0.003)
    assert len(lost) > 5
    wait_for("the end of the utterance", lambda: host.has_ended(SSRC))
    assert plane.counted(SSRC, "concealed") == 0
    who.has_stopped()
    chunks = host.of(SSRC)
    host.die()
    assert likeness(chunks, said) > 0.8, plane.drops()


def test_an_opus_dtx_pause_is_not_a_loss(store: Store, plane: DataPlane, host: AsrHost) -> None:
    """Discontinuous transmission: in silence a packet arrives every 400 ms, and no sequence number is skipped."""
    store.open_session(SSRC, media="111 opus/48000/2 20")
    who = Caller(plane, SSRC)
    who.enter()
    sequence, not_sent = 5000, 0
    for n, payload in enumerate(Encoder(pauses=True).encode((silence(1) + speech()[:48_000] + bytes(48_000)) * 3)):
        if len(payload) > NOT_SENT_BYTES:
            who.send(struct.pack(">BBHII", 0x80, 111, sequence, n * 960, SSRC) + payload)
            sequence += 1
        else:
            not_sent += 1
        time.sleep(0.02)
    assert not_sent > 20, "there were pauses"
    wait_for("it is heard", lambda: host.has_ended(SSRC))
    assert plane.counted(SSRC, "concealed") == 0
    assert not [chunk for chunk in host.of(SSRC) if chunk.flags & CONCEALED]


@pytest.mark.parametrize("payload_type", [102, 126])
def test_telephone_events_have_the_types_that_the_record_names(
    store: Store, plane: DataPlane, host: AsrHost, payload_type: int
) -> None:
    who = Caller(plane, SSRC)
    store.open_session(SSRC, media="96 L16/16000/1 20 102,126")
    who.enter()
    for frame in frames(silence(4) + speech() + silence(1)):
        if who.sequence % 10 == 0:
            head = struct.pack(">BBHII", 0x80, payload_type, who.sequence, who.timestamp, SSRC)
            who.send(head + bytes(4))
            who.sequence += 1
            who.pause(-1)  # an event takes a sequence number and no time
        who.send(who.packet(frame))
        time.sleep(0.002)
    wait_for("it is heard", lambda: host.has_ended(SSRC))
    assert plane.drops()["wrong-payload"] == 0
    assert plane.counted(SSRC, "concealed") == 0


def test_losses_of_a_telephone_are_concealed_and_marked(store: Store, plane: DataPlane, host: AsrHost) -> None:
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
