"""The requests, the interval and the result of a synthetic call, and the reason of a failed one in the log."""

import asyncio
import json
import logging
import wave
from types import SimpleNamespace
from unittest.mock import AsyncMock, Mock

import pytest
import websockets
from redis.exceptions import RedisError

from images.gateway.tests.clocks import VirtualTime
from voice_gateway.refusals import Refusal
from voice_gateway.synthetic_call import SPEECH_FILE, SyntheticCaller


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Refusal(503, "no capacity", "no ASR host has a free slot"), "no ASR host has a free slot"),
        (ConnectionRefusedError("port 443"), "port 443"),
        (TimeoutError(), "TimeoutError"),
        (RedisError("away"), "away"),
        (("",), "its transcript is empty"),
        (("please hold",), None),
    ],
)
async def test_a_failed_call_is_logged_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    outcome: Exception | tuple[str],
    reason: str | None,
) -> None:
    gateway = Mock()
    caller = SyntheticCaller(gateway, "wss://media.voice.test")
    monkeypatch.setattr(caller, "_transcribe_speech", AsyncMock(side_effect=outcome))
    with caplog.at_level(logging.WARNING, "voice_gateway.synthetic_call"):
        assert await caller.make_call() is (reason is None)
    assert [record.__dict__["fields"] for record in caplog.records] == ([{"reason": reason}] if reason else [])
    gateway.metrics.observe.assert_called_once_with("SyntheticCallSucceeds", int(reason is None))


def transcript(text: str, *others: str) -> str:
    alternatives = [{"transcript": each} for each in (text, *others)]
    return json.dumps({"type": "Results", "channel": {"alternatives": alternatives}})


async def test_a_call_sends_its_speech_in_real_time_and_joins_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[str | bytes] = []
    requests: list[websockets.Request] = []
    pauses: list[float] = []

    async def serve(socket: websockets.ServerConnection) -> None:
        assert socket.request
        requests.append(socket.request)
        async for message in socket:
            received.append(message)
            if isinstance(message, str):
                await socket.send(json.dumps({"type": "Metadata"}))
                await socket.send(transcript("Please hold"))
                await socket.send(transcript("the line.", "a lion."))
                await socket.close()

    gateway = Mock(sessions=AsyncMock(), reservations=AsyncMock())
    gateway.tokens.create.return_value = ("token-1", 0)
    opened = AsyncMock(return_value=Mock(id="id-1", ssrc=7))
    monkeypatch.setattr("voice_gateway.synthetic_call.find_full_tier", lambda *_: None)
    monkeypatch.setattr("voice_gateway.synthetic_call.open_session", opened)

    async def pause(duration_s: float) -> None:
        pauses.append(duration_s)
        await asyncio.sleep(0)

    async with websockets.serve(serve, "127.0.0.1", 0) as server:
        caller = SyntheticCaller(gateway, f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        monkeypatch.setattr("voice_gateway.synthetic_call.asyncio", SimpleNamespace(sleep=pause))
        assert await caller._transcribe_speech() == "Please hold the line."
    with wave.open(str(SPEECH_FILE)) as file:
        rate, audio = file.getframerate(), file.readframes(file.getnframes())
    frame_bytes = 2 * rate // 50
    frames = [audio[begin : begin + frame_bytes] for begin in range(0, len(audio), frame_bytes)]
    assert received == [*frames, '{"type": "CloseStream"}'], "a frame lasts 20 ms"
    assert pauses == [0.02] * len(frames)
    [request] = requests
    assert request.path == f"/v1/listen?encoding=linear16&sample_rate={rate}"
    assert request.headers["Authorization"] == "Bearer token-1"
    assert "Sec-WebSocket-Extensions" not in request.headers
    gateway.tokens.create.assert_called_once_with("id-1")
    gateway.sessions.close.assert_awaited_once_with(opened.return_value)
    gateway.reservations.release.assert_awaited_once_with(7)


async def test_a_call_is_made_every_minute_until_the_gateway_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, gateway = VirtualTime(monkeypatch, "voice_gateway.synthetic_call"), Mock(draining=asyncio.Event())
    caller = SyntheticCaller(gateway, "wss://media.voice.test")
    called_at: list[float] = []

    async def make_call() -> bool:
        called_at.append(clock.now)
        if len(called_at) == 3:
            gateway.draining.set()
        return True

    monkeypatch.setattr(caller, "make_call", make_call)
    running = asyncio.create_task(caller.run())
    await clock.run_for(600)
    assert running.done()
    assert called_at == pytest.approx([60, 120, 180])
