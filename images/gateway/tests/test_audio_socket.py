"""Audio in: what comes over the socket leaves as RTP, in order and in time."""

import asyncio
import contextlib
import itertools
import json
import time
from pathlib import Path

import numpy as np
import opuslib_next
import pytest
import websockets
from redis.asyncio import Redis

from blueprint.contract.network import Tier
from blueprint.contract.state import SessionField
from images.conftest import PATIENCE_S
from images.gateway.tests.conftest import Start
from images.gateway.tests.running import APP, BYE, GatewayProcess, Hosts, Opened, VadHost, holds
from voice_runtime import state

pytestmark = pytest.mark.usefixtures("hosts", "vad")

RATE = 16_000
SECOND_BYTES = 2 * RATE
TONE_HZ = 440


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
    await asyncio.wait_for(connection.wait_closed(), PATIENCE_S)
    return connection.close_code, connection.close_reason


async def test_audio_leaves_unchanged_with_a_goodbye_behind_it(gateway: GatewayProcess, vad: VadHost) -> None:
    opened = await gateway.open()
    audio = tone(1.01)  # ends within a frame
    assert await send(opened, audio, message=1234) == 1000
    assert len(await vad.heard(opened.ssrc, 51)) == 51
    heard = vad.audio(opened.ssrc)
    np.testing.assert_array_equal(heard[: len(audio)], audio)
    assert not heard[len(audio) :].any()
    await holds("the goodbye", lambda: vad.notices == [(opened.ssrc, BYE)])


async def test_commit_leaves_behind_the_audio_before_it(gateway: GatewayProcess, vad: VadHost, store: Redis) -> None:
    opened = await gateway.open()
    audio = tone(0.5, 48_000)
    async with opened.socket() as connection:
        await connection.send(json.dumps({"type": "start", "rate": 48_000, "encoding": "pcm16"}))
        for _ in range(2):
            await connection.send(audio.tobytes())
            await connection.send('{"type": "commit"}')
        await holds("both", lambda: vad.notices == [(opened.ssrc, APP)] * 2)
        assert len(vad.of(opened.ssrc)) == 50, "what a resampler holds back goes with the commit"
    begins_at = await store.hget(state.session(opened.ssrc), SessionField.BEGINS_AT)
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
    # However busy the machine: a frame may be late, and up to 0.2 s are caught up, but none is early.
    for number, packet in enumerate(packets):
        assert packet.at - begin >= number * 0.02 - 0.25


async def test_sessions_have_ports_of_their_own(gateway: GatewayProcess, vad: VadHost) -> None:
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
    """Encode 48 kHz, two channels, as browsers do by default."""
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
async def test_what_is_no_opus_packet_is_refused(gateway: GatewayProcess, message: bytes) -> None:
    opened = await gateway.open()
    async with opened.socket() as connection:
        await connection.send('{"type": "start", "encoding": "opus"}')
        await connection.send(message)
        code, reason = await close_of(connection)
    assert code == 1007
    assert "no Opus packet" in str(reason)


async def test_session_is_closed_behind_its_audio(gateway: GatewayProcess, vad: VadHost, store: Redis) -> None:
    ended, gone = await gateway.open(), await gateway.open()
    await send(ended, tone(0.1))
    async with gone.socket() as connection:
        await connection.send(tone(0.1).tobytes())
    await holds("silence behind the caller that went", lambda: len(vad.of(gone.ssrc)) == 5)
    for opened in (ended, gone):
        while await store.hget(state.session(opened.ssrc), "state") != b"closed":
            await asyncio.sleep(0.02)
        with pytest.raises(websockets.InvalidStatus, match="404"):
            await opened.socket()


BAD_MESSAGES = [
    ("hello", 1003, "start, commit and end only"),
    ('{"type": "start", "rate": 48000, "volume": 11}', 1003, "volume"),
    ('{"type": "start", "rate": 100}', 1003, "8000"),
    ('{"type": "start", "encoding": "mp3"}', 1003, "'opus'"),
    ('{"type": "start", "rate": 48000, "encoding": "opus"}', 1003, "leave rate away"),
    ('{"type": "stop"}', 1003, "'stop'"),
    ("é" * 200, 1003, "start, commit and end only"),
    (json.dumps({"type": "é" * 200}, ensure_ascii=False), 1003, "start, commit and end only"),
    (b"", 1007, "0 bytes"),
    (b"\0\0\0", 1007, "3 bytes"),
    (bytes(70_000), 1009, ""),
]


@pytest.mark.parametrize(("message", "code", "reason"), BAD_MESSAGES, ids=lambda value: repr(value)[:20])
async def test_wrong_message_is_refused_with_its_reason(
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


async def test_replayed_foreign_and_forged_tokens_are_refused(gateway: GatewayProcess) -> None:
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


async def test_a_socket_says_where_its_audio_comes_from(gateway: GatewayProcess, store: Redis) -> None:
    opened = await gateway.open()
    assert not await store.hexists(state.session(opened.ssrc), SessionField.GATEWAY)
    async with opened.socket():
        assert await store.hget(state.session(opened.ssrc), SessionField.GATEWAY) == b"127.0.0.1"


async def test_no_socket_while_no_vad_host_takes_sessions(gateway: GatewayProcess, hosts: Hosts) -> None:
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
    """Return what the kernel may hold of one TCP connection, at both of its ends."""
    limits = (Path(f"/proc/sys/net/ipv4/tcp_{name}").read_text(encoding="ascii") for name in ("rmem", "wmem"))
    return sum(int(limit.split()[2]) for limit in limits)


async def test_caller_that_sends_too_fast_is_held_back_and_then_closed(gateway: GatewayProcess) -> None:
    opened = await gateway.open()
    sent = 0
    async with opened.socket() as connection:
        with contextlib.suppress(websockets.ConnectionClosed):
            while True:
                await connection.send(bytes(SECOND_BYTES))
                sent += 1
        code, reason = await close_of(connection)
    assert code == 1008
    assert "faster than real time" in str(reason)
    # Ten seconds of patience and what the gateway buffers are far less than a minute.
    assert sent < 60 + kernel_holds_bytes() / SECOND_BYTES


async def test_silent_socket_is_closed(start: Start) -> None:
    gateway = await start(IDLE_TIMEOUT_S=1).ready()
    opened = await gateway.open()
    async with opened.socket() as connection:
        assert await close_of(connection) == (1008, "no audio for 1 s")


async def test_session_lasts_no_longer_than_it_may(start: Start) -> None:
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


async def test_media_port_has_nothing_but_the_socket(gateway: GatewayProcess) -> None:
    async with gateway.client() as client:
        for path in ("/v1/sessions", "/", "/docs"):
            answer = await client.post(f"http://127.0.0.1:{gateway.media_port}{path}", json={"transport": "srtp"})
            assert answer.status_code == 404
    assert gateway.health(gateway.media_port) == 200
