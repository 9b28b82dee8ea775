"""Incoming audio: everything received over the socket is sent as RTP, in order and in time."""

import asyncio
import contextlib
import io
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import opuslib_next
import pytest
import websockets
from redis.asyncio import Redis

from images.conftest import BUSY_TIMEOUT_S
from images.gateway.tests.conftest import Start
from images.gateway.tests.running import APP, BYE, GatewayProcess, Hosts, Opened, VadHost, holds
from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.state import SessionField
from voice_gateway.gateway import MAX_CONTAINER_AUDIO_SOCKETS
from voice_gateway.pacer import MAX_BUFFER_S
from voice_runtime import state

pytestmark = pytest.mark.usefixtures("hosts", "vad")

RATE = 16_000
SECOND_BYTES = 2 * RATE
TONE_HZ = 440
HELD_BACK_S = 3.0
"""Time after which a socket that is not read is known to be limited to the duration of its audio."""


def tone(seconds: float, rate: int = RATE) -> np.ndarray:
    return (8000 * np.sin(2 * np.pi * TONE_HZ * np.arange(int(seconds * rate)) / rate)).astype("<i2")


def assert_is_the_tone(samples: np.ndarray, tolerance: float) -> None:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    assert np.argmax(spectrum) * RATE / len(samples) == pytest.approx(TONE_HZ, abs=2)
    assert np.abs(samples.astype(int)).max() == pytest.approx(8000, rel=tolerance)


async def send(
    opened: Opened, audio: np.ndarray, *, message: int = 3200, start: dict[str, object] | None = None
) -> int:
    """Send audio at once and end it; return the close code."""
    async with opened.socket() as connection:
        if start:
            await connection.send(json.dumps(start))
        data = audio.tobytes()
        for begin in range(0, len(data), message):
            await connection.send(data[begin : begin + message])
        await connection.send('{"type": "end"}')
        await connection.wait_closed()
        assert connection.close_code is not None
        return connection.close_code


async def close_of(connection: websockets.ClientConnection) -> tuple[int | None, str | None]:
    await asyncio.wait_for(connection.wait_closed(), BUSY_TIMEOUT_S)
    return connection.close_code, connection.close_reason


async def test_audio_is_forwarded_unchanged_and_followed_by_a_goodbye(gateway: GatewayProcess, vad: VadHost) -> None:
    opened = await gateway.open()
    audio = tone(1.01)  # ends within a frame
    assert await send(opened, audio, message=1234) == 1000
    assert len(await vad.heard(opened.ssrc, 51)) == 51
    heard = vad.audio(opened.ssrc)
    np.testing.assert_array_equal(heard[: len(audio)], audio)
    assert not heard[len(audio) :].any()
    await holds("the goodbye", lambda: vad.notices == [(opened.ssrc, BYE)])


async def test_commit_is_sent_after_the_preceding_audio(gateway: GatewayProcess, vad: VadHost, store: Redis) -> None:
    opened = await gateway.open()
    audio = tone(0.5, 48_000)
    async with opened.socket() as connection:
        await connection.send(json.dumps({"type": "start", "rate": 48_000, "encoding": "pcm16"}))
        for _ in range(2):
            await connection.send(audio.tobytes())
            await connection.send('{"type": "commit"}')
        await holds("both", lambda: vad.notices == [(opened.ssrc, APP)] * 2)
        assert len(vad.of(opened.ssrc)) == 50, "what a resampler holds back goes with the commit"
    begins_at = await store.hget(state.build_session_key(opened.ssrc), SessionField.BEGINS_AT)
    assert vad.of(opened.ssrc)[0].timestamp == int(begins_at or 0), "places in the audio count from there"


async def test_frames_leave_in_order_and_no_faster_than_real_time(gateway: GatewayProcess, vad: VadHost) -> None:
    opened = await gateway.open()
    begin = time.monotonic()
    await send(opened, tone(2), message=32_000)
    packets = await vad.heard(opened.ssrc, 100)
    assert {packet.payload_type for packet in packets} == {96}
    assert len({packet.source for packet in packets}) == 1
    for before, after in itertools.pairwise(packets):
        assert (after.sequence - before.sequence) & 0xFFFF == 1
        assert (after.timestamp - before.timestamp) & 0xFFFFFFFF == 320
    # On a busy machine, a frame may be late, and up to 0.2 s are caught up, but none is early.
    for number, packet in enumerate(packets):
        assert packet.at - begin >= number * 0.02 - 0.25


async def test_sessions_have_separate_ports(gateway: GatewayProcess, vad: VadHost) -> None:
    first, second = await gateway.open(), await gateway.open()
    await asyncio.gather(send(first, tone(0.1)), send(second, tone(0.1)))
    of_first, of_second = await vad.heard(first.ssrc, 1), await vad.heard(second.ssrc, 1)
    assert of_first[0].source != of_second[0].source


@pytest.mark.parametrize("rate", [8_000, 44_100, 48_000])
async def test_other_rates_are_resampled(gateway: GatewayProcess, vad: VadHost, rate: int) -> None:
    opened = await gateway.open()
    assert await send(opened, tone(1, rate), start={"type": "start", "rate": rate, "encoding": "pcm16"}) == 1000
    assert len(await vad.heard(opened.ssrc, 50)) == 50
    heard = vad.audio(opened.ssrc)
    assert_is_the_tone(heard[4000:12_000], tolerance=0.02)


def opus(audio: np.ndarray, *, packet_ms: int) -> list[bytes]:
    """Encode 48 kHz, two channels, the default of browsers."""
    encoder = opuslib_next.Encoder(48_000, 2, "voip")
    samples = 48 * packet_ms
    stereo = np.repeat(audio, 2)
    return [encoder.encode(part.tobytes(), samples) for part in stereo.reshape(-1, 2 * samples)]


@pytest.mark.parametrize("packet_ms", [10, 20, 60])
async def test_opus_packets_are_decoded(gateway: GatewayProcess, vad: VadHost, packet_ms: int) -> None:
    opened = await gateway.open()
    async with opened.socket() as connection:
        await connection.send('{"type": "start", "encoding": "opus"}')
        for packet in opus(tone(1.2, 48_000), packet_ms=packet_ms):
            await connection.send(packet)
        await connection.send('{"type": "end"}')
        assert await close_of(connection) == (1000, "all audio has been taken")
    assert len(await vad.heard(opened.ssrc, 60)) == 60
    heard = vad.audio(opened.ssrc)
    assert_is_the_tone(heard[4000:16_000], tolerance=0.2)


@pytest.mark.parametrize(
    "message", [b"", b"\xff", bytes(2000), b"\x03\xff" + bytes(20)], ids=["empty", "no frames", "long", "63 frames"]
)
async def test_invalid_opus_packets_are_refused(gateway: GatewayProcess, message: bytes) -> None:
    opened = await gateway.open()
    async with opened.socket() as connection:
        await connection.send('{"type": "start", "encoding": "opus"}')
        await connection.send(message)
        code, reason = await close_of(connection)
    assert code == 1007
    assert "no Opus packet" in str(reason)


async def test_session_is_closed_after_its_audio(gateway: GatewayProcess, vad: VadHost, store: Redis) -> None:
    ended, gone = await gateway.open(), await gateway.open()
    await send(ended, tone(0.1))
    async with gone.socket() as connection:
        await connection.send(tone(0.1).tobytes())
    await holds("silence behind the caller that went", lambda: len(vad.of(gone.ssrc)) == 5)
    for opened in (ended, gone):
        while await store.hget(state.build_session_key(opened.ssrc), "state") != b"closed":
            await asyncio.sleep(0.02)
        with pytest.raises(websockets.InvalidStatus, match="404"):
            await opened.socket()


BAD_MESSAGES = [
    ("hello", 1003, "start, commit and end only"),
    ('{"type": "start", "rate": 48000, "volume": 11}', 1003, "volume"),
    ('{"type": "start", "rate": 100}', 1003, "8000"),
    ('{"type": "start", "encoding": "mp3"}', 1003, "'opus'"),
    ('{"type": "start", "rate": 48000, "encoding": "opus"}', 1003, "leave rate and channels away"),
    ('{"type": "stop"}', 1003, "'stop'"),
    ("é" * 200, 1003, "start, commit and end only"),
    (json.dumps({"type": "é" * 200}, ensure_ascii=False), 1003, "start, commit and end only"),
    (b"", 1007, "0 bytes"),
    (bytes(65_537), 1009, ""),
]


@pytest.mark.parametrize(("message", "code", "reason"), BAD_MESSAGES, ids=lambda value: repr(value)[:20])
async def test_invalid_message_is_rejected_with_the_reason(
    gateway: GatewayProcess, message: str | bytes, code: int, reason: str
) -> None:
    opened = await gateway.open()
    async with opened.socket() as connection:
        await connection.send(message)
        closed, said = await close_of(connection)
    assert closed == code
    assert reason in str(said)


async def test_start_comes_before_audio(gateway: GatewayProcess) -> None:
    opened = await gateway.open()
    async with opened.socket() as connection:
        await connection.send(bytes(640))
        await connection.send('{"type": "start", "rate": 48000}')
        assert await close_of(connection) == (1003, "`start` comes once, before any audio")


async def refused(opened: Opened, token: str | None = None) -> tuple[int, str]:
    with pytest.raises(websockets.InvalidStatus) as caught:
        await opened.socket(token)
    return caught.value.response.status_code, json.loads(caught.value.response.body or b"{}")["error"]


async def test_replayed_foreign_and_forged_tokens_are_rejected(gateway: GatewayProcess) -> None:
    opened, other, native = await gateway.open(), await gateway.open(), await gateway.open("srtp")
    async with opened.socket() as connection:
        await connection.send('{"type": "end"}')
        await connection.wait_closed()
    assert await refused(opened) == (404, "unknown session")
    assert await refused(opened, other.token) == (403, "foreign token")
    assert await refused(opened, "rubbish") == (401, "invalid token")
    assert await refused(native) == (403, "wrong transport")
    assert not [line for line in gateway.logged() if line.get("level") == "error"], "callers' mistakes are no alarm"


async def test_socket_without_token_is_refused(gateway: GatewayProcess) -> None:
    opened = await gateway.open()
    offers: list[tuple[list[websockets.Subprotocol] | None, str]] = [
        (None, "400"),
        ([websockets.Subprotocol("voice.v1")], "401"),
    ]
    for protocols, status in offers:
        with pytest.raises(websockets.InvalidStatus, match=status):
            await websockets.connect(
                f"ws://127.0.0.1:{gateway.media_port}/v1/sessions/{opened.id}/audio", subprotocols=protocols
            )


async def test_expired_token_opens_no_socket(start: Start) -> None:
    gateway = await start(TOKEN_TTL_S=1).ready()
    opened = await gateway.open()
    await asyncio.sleep(1.5)
    assert await refused(opened) == (401, "invalid token")


async def test_a_socket_records_the_source_of_its_audio(gateway: GatewayProcess, store: Redis) -> None:
    opened = await gateway.open()
    assert not await store.hexists(state.build_session_key(opened.ssrc), SessionField.GATEWAY)
    async with opened.socket():
        assert await store.hget(state.build_session_key(opened.ssrc), SessionField.GATEWAY) == b"127.0.0.1"


async def test_sockets_are_rejected_without_an_available_vad_host(gateway: GatewayProcess, hosts: Hosts) -> None:
    opened = await gateway.open()
    hosts.put(Tier.VAD, "vad-1", draining=True)
    await gateway.answers(503)
    assert await refused(opened) == (503, "no capacity")


@pytest.mark.parametrize("how", ["drains", "dies"])
async def test_session_moves_when_its_vad_host_leaves(
    gateway: GatewayProcess, hosts: Hosts, vad: VadHost, rtp_port: int, how: str
) -> None:
    other = VadHost(rtp_port, "127.0.0.2")
    opened = await gateway.open()
    try:
        async with opened.socket() as connection:
            moved = asyncio.Event()
            sending = asyncio.create_task(_speak(connection, until=moved))
            await holds("audio at the first host", lambda: len(vad.of(opened.ssrc)) > 5)
            hosts.put(Tier.VAD, "vad-2", "127.0.0.2")
            if how == "drains":
                hosts.put(Tier.VAD, "vad-1", draining=True)
            else:
                del hosts.present[Tier.VAD, "vad-1"]
            await holds("audio at the second host", lambda: len(other.of(opened.ssrc)) > 5)
            moved.set()
            await sending
            await connection.wait_closed()
    finally:
        other.stop()
    packets = [*vad.of(opened.ssrc), *other.of(opened.ssrc)]
    steps = {(b.sequence - a.sequence) & 0xFFFF for a, b in itertools.pairwise(packets)}
    assert steps == {1}, "sequence numbers go on at the other host"


async def test_session_stays_at_a_full_host_and_ends_without_one(
    gateway: GatewayProcess, hosts: Hosts, vad: VadHost
) -> None:
    opened = await gateway.open()
    async with opened.socket() as connection:
        speaking = asyncio.create_task(_speak(connection))
        await holds("audio", lambda: len(vad.of(opened.ssrc)) > 5)
        hosts.put(Tier.VAD, "vad-1", slots=0)
        await asyncio.sleep(8)  # longer than a socket waits for a host
        before = len(vad.of(opened.ssrc))
        await holds("audio goes on", lambda: len(vad.of(opened.ssrc)) > before + 5)
        del hosts.present[Tier.VAD, "vad-1"]
        assert await close_of(connection) == (1013, "no VAD host takes audio; try again")
        speaking.cancel()


async def _speak(connection: websockets.ClientConnection, until: asyncio.Event | None = None) -> None:
    while not (until and until.is_set()):
        await connection.send(bytes(3200))
        await asyncio.sleep(0.1)
    await connection.send('{"type": "end"}')


def kernel_holds_bytes() -> int:
    """Return the maximum kernel buffer of a TCP connection, at both ends."""
    limits = (Path(f"/proc/sys/net/ipv4/tcp_{name}").read_text(encoding="ascii") for name in ("rmem", "wmem"))
    return sum(int(limit.split()[2]) for limit in limits)


async def test_recording_sent_at_once_is_processed_in_real_time(start: Start, vad: VadHost) -> None:
    """Longer than the idle timeout of a socket, since buffered audio is not idle."""
    gateway = await (await start(IDLE_TIMEOUT_S=2).ready()).accepts_callers()
    opened = await gateway.open()
    audio = tone(7)
    begin = time.monotonic()
    assert await send(opened, audio) == 1000
    assert time.monotonic() - begin > 6
    np.testing.assert_array_equal(vad.audio(opened.ssrc), audio)


async def test_caller_that_sends_too_fast_is_throttled(gateway: GatewayProcess, vad: VadHost) -> None:
    """The gateway reads no more than it buffers; all sent audio is still processed."""
    opened = await gateway.open()
    sent = 0
    async with opened.socket(ping_interval=None) as connection:
        with contextlib.suppress(TimeoutError):
            while True:
                await asyncio.wait_for(connection.send(bytes(SECOND_BYTES)), HELD_BACK_S)
                sent += 1
        assert MAX_BUFFER_S <= sent < MAX_BUFFER_S + 60 + kernel_holds_bytes() / SECOND_BYTES
        before = len(vad.of(opened.ssrc))
        await holds("audio goes on", lambda: len(vad.of(opened.ssrc)) > before)
        assert connection.close_code is None
        connection.transport.abort()


async def test_messages_may_end_inside_a_sample(gateway: GatewayProcess, vad: VadHost) -> None:
    opened = await gateway.open()
    audio = tone(0.3)
    assert await send(opened, audio, message=333) == 1000
    np.testing.assert_array_equal(vad.audio(opened.ssrc)[: len(audio)], audio)


async def test_two_channels_are_mixed(gateway: GatewayProcess, vad: VadHost) -> None:
    opened = await gateway.open()
    stereo = np.stack([tone(0.2), np.zeros(3200, np.int16)], axis=1)
    assert await send(opened, stereo, message=3333, start={"type": "start", "channels": 2}) == 1000
    np.testing.assert_allclose(vad.audio(opened.ssrc), tone(0.2) / 2, atol=1)


@pytest.mark.parametrize(
    ("form", "codec"), [("webm", "libopus"), ("ogg", "libopus"), ("wav", "pcm_s16le"), ("mp3", "mp3")]
)
async def test_container_is_decoded_while_it_arrives(
    gateway: GatewayProcess, vad: VadHost, form: str, codec: str
) -> None:
    opened = await gateway.open()
    pieces = list(recorded(tone(2.0, 48_000), form, codec))
    async with opened.socket() as connection:
        await connection.send('{"type": "start", "encoding": "container"}')
        for piece in pieces[: len(pieces) // 2]:
            await connection.send(piece)
        await vad.heard(opened.ssrc, 25)  # before the rest is recorded
        for piece in pieces[len(pieces) // 2 :]:
            await connection.send(piece)
        await connection.send('{"type": "end"}')
        assert await close_of(connection) == (1000, "all audio has been taken")
    assert 96 <= len(vad.of(opened.ssrc)) <= 106  # codecs add some silence at both ends
    assert_is_the_tone(vad.audio(opened.ssrc)[8000:24_000], tolerance=0.2)


def recorded(audio: np.ndarray, form: str, codec: str) -> Iterator[bytes]:
    """Yield a file as a recorder writes it, a piece per tenth of a second."""
    file = Growing()
    options = {"webm": {"live": "1", "cluster_time_limit": "100"}, "ogg": {"page_duration": "100000"}}.get(form, {})
    with av.open(file, "w", format=form, options=options) as output:
        stream = output.add_stream(codec, rate=48_000, layout="mono")
        assert isinstance(stream, av.AudioStream)
        resampler = av.AudioResampler(stream.format, "mono", 48_000)
        for begin in range(0, len(audio), 4800):
            frame = av.AudioFrame.from_ndarray(audio[begin : begin + 4800].reshape(1, -1), format="s16", layout="mono")
            frame.sample_rate, frame.pts = 48_000, begin
            for each in resampler.resample(frame):
                output.mux(stream.encode(each))
            yield file.written()
        output.mux(stream.encode(None))
    yield file.written()


class Growing(io.RawIOBase):
    """A file that is sent while it is written."""

    def __init__(self) -> None:
        self._written = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._written += bytes(data)
        return len(bytes(data))

    def written(self) -> bytes:
        written, self._written = self._written, b""
        return written


async def test_invalid_containers_are_refused(gateway: GatewayProcess) -> None:
    opened = await gateway.open()
    async with opened.socket() as connection:
        await connection.send('{"type": "start", "encoding": "container"}')
        with contextlib.suppress(websockets.ConnectionClosed):
            for _ in range(100):
                await connection.send(noise(3200))
                await asyncio.sleep(0.05)
        code, reason = await close_of(connection)
    assert code == 1007
    assert "no audio file" in str(reason)


async def test_decoders_of_containers_are_bounded(gateway: GatewayProcess) -> None:
    sessions = [await gateway.open() for _ in range(MAX_CONTAINER_AUDIO_SOCKETS + 1)]
    async with contextlib.AsyncExitStack() as sockets:
        for opened in sessions[:-1]:
            connection = await sockets.enter_async_context(opened.socket())
            await connection.send('{"type": "start", "encoding": "container"}')
            await connection.send(b"RIFF")
        last = await sockets.enter_async_context(sessions[-1].socket())
        await asyncio.sleep(0.5)  # other messages may be in flight
        await last.send('{"type": "start", "encoding": "container"}')
        await last.send(b"RIFF")
        assert (await close_of(last))[0] == 1013


def noise(size: int) -> bytes:
    return np.random.default_rng(1).bytes(size)


async def test_silent_socket_is_closed(start: Start) -> None:
    gateway = await start(IDLE_TIMEOUT_S=1).ready()
    opened = await gateway.open()
    async with opened.socket() as connection:
        assert await close_of(connection) == (1008, "no audio for 1 s")


async def test_session_ends_at_its_maximum_duration(start: Start) -> None:
    gateway = await start(SESSION_MAX_S=4).ready()
    opened = await gateway.open()
    async with opened.socket() as connection:
        speaking = asyncio.create_task(_speak(connection))
        assert await close_of(connection) == (1008, "a session lasts 4 s at most")
        speaking.cancel()


async def test_closing_a_session_closes_its_socket(gateway: GatewayProcess) -> None:
    opened = await gateway.open()
    async with opened.socket() as connection:
        assert await opened.close() == 204
        assert await close_of(connection) == (1000, "the session was closed")


async def test_media_port_serves_only_the_socket(gateway: GatewayProcess) -> None:
    async with gateway.client() as client:
        for path in ("/v1/sessions", "/", "/docs"):
            answer = await client.post(f"http://127.0.0.1:{gateway.media_port}{path}", json={"transport": "srtp"})
            assert answer.status_code == 404
    assert gateway.health(gateway.media_port) == 200
