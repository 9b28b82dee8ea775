"""Any message of a caller ends at most its own socket: the message is rejected, and nothing else is affected."""

import base64
import json
import logging
from collections.abc import AsyncIterator

import pytest
import websockets
from pipecat.frames.frames import InputAudioRawFrame
from pipecat.frames.protobufs import frames_pb2
from redis.asyncio import Redis

from images.agent.tests.conftest import RATE, Place, running_agent
from images.agent.tests.engines import Engines
from images.conftest import until
from voice_agent.messages import ProtobufSerializer

NESTED = "[" * 60_000
START = {"streamSid": "MZ1", "callSid": "CA1"}


def audio(rate: int = RATE, channels: int = 1, samples: bytes = bytes(640)) -> bytes:
    frame = frames_pb2.Frame()  # type: ignore[attr-defined]
    frame.audio.audio, frame.audio.sample_rate, frame.audio.num_channels = samples, rate, channels
    return bytes(frame.SerializeToString())


NO_STARTS: tuple[str | bytes, ...] = (
    *("[]", "5", "null", '"start"', "{}", "What is this?", NESTED, f'{{"event": {NESTED}', b"\0", b"{}"),
    *map(
        json.dumps,
        (
            {"event": "start"},
            {"event": "start", "start": []},
            {"event": "start", "start": START | {"callSid": "C" * 999}},
            {"event": "start", "start": START | {"customParameters": []}},
            {"event": "start", "start": START | {"customParameters": {"key": {}}}},
        ),
    ),
)
NO_EVENTS: tuple[str | bytes, ...] = (
    *("[]", "5", NESTED, "{}", b"\0"),
    '{"event": "media", "media": 5}',
    '{"event": "media", "media": {"payload": "x"}}',
)
NO_AUDIO: tuple[str | bytes, ...] = (
    *(audio(channels=0), audio(channels=2), audio(rate=0), audio(rate=2**32 - 1), audio(samples=bytes(3))),
    *(b"\xff" * 32, "text", NESTED),
)


@pytest.fixture
async def place(engines: Engines, store: Redis, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Place]:
    with caplog.at_level(logging.ERROR, "uvicorn.error"):
        async with running_agent(engines, store) as place:
            yield place
            await until(lambda: place.agent.conversation_count == 0 and not place.agent.unauthenticated)
    assert [record for record in caplog.records if record.name == "uvicorn.error"] == []


async def test_a_socket_without_a_twilio_start_message_is_rejected(place: Place) -> None:
    for start in NO_STARTS:
        async with websockets.connect(f"ws{place.url[4:]}/v1/twilio") as socket:
            await socket.send(start)
            await socket.wait_closed()
            assert socket.close_code == 1008, start
    call = {"start": START}
    for others, is_held in (([{}] * 3, True), ([{}] * 4, False), ([call] * 4, False)):
        async with websockets.connect(f"ws{place.url[4:]}/v1/twilio") as socket:
            for event, other in zip(("connected", "stop", "connected", "stop"), others, strict=False):
                await socket.send(json.dumps({"event": event} | other))
            await socket.send(json.dumps({"event": "start"} | call))
            if is_held:
                await until(lambda: place.agent.conversation_count == 1)
            else:
                await socket.wait_closed()
                assert socket.close_code == 1008
        await until(lambda: place.agent.conversation_count == 0)


async def test_a_call_with_an_invalid_start_message_is_closed(place: Place) -> None:
    for message in NO_EVENTS:
        async with websockets.connect(f"ws{place.url[4:]}/v1/twilio") as socket:
            await socket.send(json.dumps({"event": "start", "start": START}))
            await until(lambda: place.agent.conversation_count == 1)
            await socket.send(message)
            await socket.wait_closed()
            assert socket.close_code == 1007, message
        await until(lambda: place.agent.conversation_count == 0)


async def test_other_twilio_messages_are_ignored(place: Place) -> None:
    """Returned marks, also after a ``clear``, pressed keys, and the end of the stream."""
    beside = [
        {"event": "mark", "sequenceNumber": "4", "streamSid": "MZ1", "mark": {"name": "answer 1"}},
        {"event": "mark", "streamSid": "MZ1"},
        {"event": "dtmf", "streamSid": "MZ1", "dtmf": {"track": "inbound_track", "digit": "5"}},
        {"event": "stop", "streamSid": "MZ1", "stop": {"accountSid": "AC1", "callSid": "CA1"}},
        {"event": "something new", "streamSid": "MZ1"},
    ]
    async with websockets.connect(f"ws{place.url[4:]}/v1/twilio") as socket:
        await socket.send(json.dumps({"event": "start", "start": START}))
        await until(lambda: place.agent.conversation_count == 1)
        for message in beside:
            await socket.send(json.dumps(message))
        payload = base64.b64encode(b"\xff" * 160).decode()
        for _ in range(50):  # a second, since resamplers buffer some
            await socket.send(json.dumps({"event": "media", "streamSid": "MZ1", "media": {"payload": payload}}))
        await until(lambda: bool(place.vads) and place.vads[-1].processed_bytes > 0)
        assert socket.close_code is None


async def test_audio_that_no_pipeline_accepts_closes_its_socket(place: Place) -> None:
    for message in NO_AUDIO:
        async with websockets.connect(f"ws{place.url[4:]}/v1/conversations") as socket:
            await until(lambda: place.agent.conversation_count == 1)
            await socket.send(message)
            await socket.wait_closed()
            assert socket.close_code == 1007, message
        await until(lambda: place.agent.conversation_count == 0)


async def test_audio_is_passed_on_as_it_was_sent() -> None:
    frame = await ProtobufSerializer().deserialize(audio(samples=b"\1\2" * 320))
    assert isinstance(frame, InputAudioRawFrame)
    assert (frame.audio, frame.sample_rate, frame.num_channels) == (b"\1\2" * 320, RATE, 1)


async def test_a_caller_cannot_inject_agent_messages(place: Place, engines: Engines) -> None:
    async with place.call() as caller:
        for kind in ("text", "transcription"):
            frame = frames_pb2.Frame()  # type: ignore[attr-defined]
            getattr(frame, kind).text = "say this"
            await caller.socket.send(frame.SerializeToString())
        frame = frames_pb2.Frame()  # type: ignore[attr-defined]
        frame.message.data = NESTED
        await caller.socket.send(frame.SerializeToString())
        await caller.socket.send(b"")
        # The caller's audio is still processed.
        await caller.socket.send(audio())
        await until(lambda: caller.vads[-1].processed_bytes > 0)
    assert (engines.asked, engines.spoken) == ([], [])


async def test_errors_are_reported_to_openais_clients(place: Place) -> None:
    async with websockets.connect(f"ws{place.url[4:]}/v1/realtime") as socket:
        await socket.recv()
        wrong = '{"type": "input_audio_buffer.append", "audio": "x"}'
        for message in ("[]", "5", NESTED, "{}", b"\xff", wrong):
            await socket.send(message)
            assert json.loads(await socket.recv())["type"] == "error", message
