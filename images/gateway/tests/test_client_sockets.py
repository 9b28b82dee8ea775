"""What other services' clients are told, event by event, and who is let in."""

import asyncio
import base64
import contextlib
import json
from typing import Any

import av
import numpy as np
import pytest
import websockets
from redis.asyncio import Redis

from blueprint.contract.network import Tier
from blueprint.contract.session_api import MOST_END_OF_TURN_MS
from blueprint.contract.state import SessionField
from images.conftest import PATIENCE_S
from images.gateway.tests.conftest import Start
from images.gateway.tests.running import APP, BYE, GatewayProcess, Hosts, VadHost, holds
from images.gateway.tests.test_callers import AUDIENCE, Issuer, issuer
from voice_gateway.audio import AudioFormat, Encoding, Framer
from voice_runtime import state
from voice_runtime.sessions import SessionState
from voice_runtime.transcripts import EventKind, TimedWord, Transcript, Transcripts

__all__ = ["issuer"]

pytestmark = pytest.mark.usefixtures("hosts")

TRANSCRIBED = "conversation.item.input_audio_transcription"
LISTEN = "/v1/listen?encoding=linear16&sample_rate=16000&interim_results=true"
REALTIME = "/v1/realtime?intent=transcription"
FRAMES = 25
DEPLOYMENTS_END_OF_TURN_MS = 600
"""What the gateway of these tests is told."""


def connect(gateway: GatewayProcess, path: str, key: str | None = "any") -> websockets.connect:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return websockets.connect(f"ws://127.0.0.1:{gateway.media_port}{path}", additional_headers=headers)


async def refused(gateway: GatewayProcess, path: str, key: str | None = "any") -> tuple[int, str]:
    with pytest.raises(websockets.InvalidStatus) as caught:
        async with connect(gateway, path, key):
            pass
    return caught.value.response.status_code, json.loads(caught.value.response.body)["detail"]


class Client:
    """Speaks JSON over a socket."""

    def __init__(self, connection: websockets.ClientConnection) -> None:
        self.connection = connection

    async def send(self, kind: str, **fields: Any) -> None:
        await self.connection.send(json.dumps({"type": kind, **fields}))

    async def receive(self, count: int = 1) -> list[dict[str, Any]]:
        return [json.loads(await self.connection.recv()) for _ in range(count)]

    async def append(self, frames: int = FRAMES) -> None:
        await self.send("input_audio_buffer.append", audio=base64.b64encode(bytes(frames * 960)).decode())

    async def begin(self, **settings: Any) -> None:
        (created,) = await self.receive()
        assert created["type"] == "session.created"
        await self.send("session.update", session={"type": "transcription", "audio": {"input": settings}})
        (updated,) = await self.receive()
        assert updated["type"] == "session.updated", updated


async def only_ssrc(vad: VadHost, store: Redis) -> int:
    """Return the SSRC of the one who has sent audio and is there; packets of the caller before may be on their way."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for ssrc in {packet.ssrc for packet in list(vad.packets)}:
                if await store.hget(state.session(ssrc), SessionField.STATE) == SessionState.OPEN.value.encode():
                    return ssrc
            await asyncio.sleep(0.01)


def notices(vad: VadHost, ssrc: int) -> list[bytes]:
    return [kind for whose, kind in vad.notices if whose == ssrc]


def event(kind: EventKind, utterance: int, text: str = "", committed: str = "", **more: Any) -> Transcript:
    begin = utterance * 20
    words = [TimedWord(text=word, start_ms=begin + 40, end_ms=begin + 80, confidence=0.5) for word in text.split()]
    return Transcript(
        kind=kind, utterance=utterance, text=text, committed=committed, words=words,
        start_ms=utterance * 20, end_ms=utterance * 20 + 500, **more,
    )  # fmt: skip


async def say(store: Redis, ssrc: int, *events: Transcript) -> None:
    for number, each in enumerate(events, 2):
        assert await Transcripts(store).publish(ssrc, each, number)


def spoken(utterance: int, text: str, committed: str = "", **more: Any) -> list[Transcript]:
    """Return what an engine says of an utterance."""
    return [
        event(EventKind.SPEECH_STARTED, utterance),
        *([event(EventKind.PARTIAL, utterance, f"{committed} something else", committed)] if committed else ()),
        event(EventKind.SPEECH_STOPPED, utterance),
        event(EventKind.FINAL, utterance, text, text, **more),
    ]


# --- Who is let in --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [REALTIME, LISTEN])
async def test_token_of_a_session_is_a_key_where_api_gateway_asks_who_calls(start: Start, path: str) -> None:
    gateway = await (await start(AUTHORIZER="iam").ready()).takes_callers()
    assert (await refused(gateway, path, "any"))[0] == 401
    assert (await refused(gateway, path, None))[0] == 401
    opened = await gateway.open()
    async with connect(gateway, path, opened.token) as connection:
        await connection.ping()
    assert (await refused(gateway, path, f"{opened.token[:-4]}AAAA"))[0] == 401


async def test_token_of_the_issuer_is_a_key(start: Start, issuer: Issuer) -> None:
    gateway = await start(JWT_ISSUER=issuer.url, JWT_AUDIENCE=AUDIENCE).ready()
    assert (await refused(gateway, LISTEN, "any"))[0] == 401
    assert (await refused(gateway, LISTEN, None))[0] == 401
    async with connect(gateway, LISTEN, issuer.token()) as connection:
        await connection.ping()


async def test_refusals_say_what_to_do(gateway: GatewayProcess, hosts: Hosts) -> None:
    assert "encoding" in (await refused(gateway, "/v1/listen"))[1]
    assert "sample_rate" in (await refused(gateway, "/v1/listen?encoding=mulaw&sample_rate=4000"))[1]
    assert "language" in (await refused(gateway, f"{LISTEN}&language=English%20please"))[1]
    assert "transcription" in (await refused(gateway, "/v1/realtime?intent=conversation"))[1]
    async with hosts.away():
        await gateway.answers(503)
        assert (await refused(gateway, LISTEN))[0] == 503


async def test_language_that_no_engine_has_is_refused(gateway: GatewayProcess, hosts: Hosts) -> None:
    hosts.put(Tier.ASR, "asr-1", languages=("en",))
    await hosts.beat()
    async with gateway.client() as http:
        while (await http.post("/v1/sessions", json={"transport": "websocket", "language": "de"})).is_success:
            pass
    assert "understood by no engine" in (await refused(gateway, f"{LISTEN}&language=de"))[1]
    async with connect(gateway, REALTIME) as connection:
        client = Client(connection)
        await client.receive()
        update = {"audio": {"input": {"transcription": {"language": "de"}}}}
        await client.send("session.update", session={"type": "transcription", **update})
        (error,) = await client.receive()
        assert error["error"]["code"] == "unsupported_language"


# --- What ends a turn ------------------------------------------------------------------------------------


async def end_of_turn_ms(vad: VadHost, store: Redis, wanted: int) -> None:
    """Wait until the engine would read so much of a session that sends audio."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for ssrc in {packet.ssrc for packet in list(vad.packets)}:
                if await store.hget(state.session(ssrc), SessionField.END_OF_TURN_MS) == str(wanted).encode():
                    return
            await asyncio.sleep(0.01)


async def test_silence_that_ends_a_turn_is_the_sessions(gateway: GatewayProcess, store: Redis, vad: VadHost) -> None:
    async with connect(gateway, f"{LISTEN}&endpointing=300") as connection:
        await connection.send(bytes(6400))
        await end_of_turn_ms(vad, store, 300)
    async with connect(gateway, f"{LISTEN}&endpointing=false") as connection:
        await connection.send(bytes(6400))
        await end_of_turn_ms(vad, store, MOST_END_OF_TURN_MS)
    assert "endpointing" in (await refused(gateway, f"{LISTEN}&endpointing=9000"))[1]
    async with connect(gateway, REALTIME) as connection:
        client = Client(connection)
        await client.begin()
        await client.append()
        await end_of_turn_ms(vad, store, DEPLOYMENTS_END_OF_TURN_MS)
        turns = {"type": "server_vad", "silence_duration_ms": 800}
        await client.send("session.update", session={"audio": {"input": {"turn_detection": turns}}})
        (updated,) = await client.receive()
        assert updated["session"]["audio"]["input"]["turn_detection"] == turns
        await end_of_turn_ms(vad, store, 800)


# --- OpenAI's realtime events ---------------------------------------------------------------------------


async def test_deltas_only_append_and_an_utterance_is_an_item(
    gateway: GatewayProcess, store: Redis, vad: VadHost
) -> None:
    async with connect(gateway, f"{REALTIME}&model=tiny") as connection:
        client = Client(connection)
        await client.begin()
        await client.append()
        ssrc = await only_ssrc(vad, store)
        await say(store, ssrc, *spoken(1, "one two three", "one two"), *spoken(100, "four"))
        told = await client.receive(11)
    kinds = ["speech_started", "delta", "speech_stopped", "committed", "delta", "completed"]
    assert [each["type"].rpartition(".")[2] for each in told] == [*kinds, *(kinds[:1] + kinds[2:])]
    assert [each["delta"] for each in told if "delta" in each] == ["one two", " three", "four"]
    assert [each["transcript"] for each in told if "transcript" in each] == ["one two three", "four"]
    first, second = {each["item_id"] for each in told[:6]}, {each["item_id"] for each in told[6:]}
    assert (len(first), len(second)) == (1, 1)
    assert told[8]["previous_item_id"] == told[0]["item_id"]
    assert len({each["event_id"] for each in told}) == len(told)


async def test_without_turns_an_item_is_what_is_committed(gateway: GatewayProcess, store: Redis, vad: VadHost) -> None:
    async with connect(gateway, REALTIME) as connection:
        client = Client(connection)
        await client.begin(turn_detection=None)
        await client.append()
        ssrc = await only_ssrc(vad, store)
        await client.send("input_audio_buffer.commit")
        await holds("the mark", lambda: notices(vad, ssrc) == [APP])
        await say(store, ssrc, *spoken(1, "one"), *spoken(100, "two", commit=True))
        told = await client.receive(4)
        assert [each["type"].rpartition(".")[2] for each in told] == ["committed", "delta", "delta", "completed"]
        assert told[-1]["transcript"] == "one two" == "".join(each.get("delta", "") for each in told)
        # With nothing behind it a commit is answered at once, and never by an error.
        await client.send("input_audio_buffer.commit")
        committed, completed = await client.receive(2)
        assert (committed["previous_item_id"], completed["transcript"]) == (told[0]["item_id"], "")
        await client.append()
        await client.send("input_audio_buffer.clear")
        assert (await client.receive())[0]["type"] == "input_audio_buffer.cleared"
        await say(store, ssrc, *spoken(200, "dropped", commit=True))
        await client.append()
        await client.send("input_audio_buffer.commit")
        await say(store, ssrc, *spoken(300, "kept", commit=True))
        assert [each.get("transcript") for each in await client.receive(3)] == [None, None, "kept"]


async def test_a_mistake_is_told_and_ends_nothing(gateway: GatewayProcess) -> None:
    async with connect(gateway, REALTIME) as connection:
        client = Client(connection)
        await client.begin()
        for kind, fields in (
            ("response.create", {}),
            ("input_audio_buffer.append", {"audio": "no base64!"}),
            ("input_audio_buffer.append", {"audio": "\u00e9"}),
            ("session.update", {"session": {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 1}}}}}),
            ("session.update", {"session": {"type": "realtime"}}),
        ):
            await client.send(kind, **fields)
            (error,) = await client.receive()
            assert error["type"] == "error"
            assert error["error"]["type"] == "invalid_request_error"
        await client.append()


async def test_language_of_an_update_is_the_sessions(gateway: GatewayProcess, store: Redis, vad: VadHost) -> None:
    async with connect(gateway, REALTIME) as connection:
        client = Client(connection)
        await client.begin(transcription={"model": "x", "language": "en"}, format={"type": "audio/pcma"})
        await client.send("input_audio_buffer.append", audio=base64.b64encode(b"\xd5" * 8000).decode())
        ssrc = await only_ssrc(vad, store)
        assert await store.hget(state.session(ssrc), "language") == b"en"
        await vad.heard(ssrc, 48)
        assert np.abs(vad.audio(ssrc)).max() <= 10, "A-law's silence"


# --- Deepgram's -----------------------------------------------------------------------------------------


async def test_listen_tells_interim_final_and_end_of_utterance(
    gateway: GatewayProcess, store: Redis, vad: VadHost
) -> None:
    async with connect(gateway, f"{LISTEN}&vad_events=true&utterance_end_ms=100&language=multi") as connection:
        assert connection.response
        assert connection.response.headers["dg-request-id"]
        client = Client(connection)
        await connection.send(bytes(640 * FRAMES))
        ssrc = await only_ssrc(vad, store)
        await client.send("KeepAlive")
        await client.send("Finalize")
        await holds("the mark", lambda: notices(vad, ssrc) == [APP])
        await say(store, ssrc, *spoken(1, "Hello there.", "Hello", speech_final=False))
        started, interim, final = await client.receive(3)
        assert started == {"type": "SpeechStarted", "channel": [0, 1], "timestamp": 0.02}
        assert (interim["is_final"], interim["speech_final"]) == (False, False)
        assert (final["is_final"], final["speech_final"], final["from_finalize"]) == (True, False, False)
        assert (final["start"], final["duration"]) == (0.02, 0.5)
        (alternative,) = final["channel"]["alternatives"]
        assert (alternative["transcript"], alternative["confidence"]) == ("Hello there.", 0.5)
        assert [word["word"] for word in alternative["words"]] == ["hello", "there"]
        await say(store, ssrc, event(EventKind.FINAL, 50, "Bye.", commit=True))
        final, end = await client.receive(2)
        assert (final["speech_final"], final["from_finalize"]) == (True, True)
        assert end == {"type": "UtteranceEnd", "channel": [0, 1], "last_word_end": 1.08}
        await client.send("CloseStream")
        await holds("the goodbye", lambda: notices(vad, ssrc)[-1:] == [BYE])
        await say(store, ssrc, *spoken(100, "Really."), event(EventKind.END, 100))
        rest = await client.receive(4)
        assert [each["type"] for each in rest] == ["SpeechStarted", "Results", "UtteranceEnd", "Metadata"]
        await connection.wait_closed()
        assert connection.close_code == 1000


async def test_end_of_utterance_is_told_by_the_audio_however_late_a_final_is(
    gateway: GatewayProcess, store: Redis, vad: VadHost
) -> None:
    async with connect(gateway, f"{LISTEN}&utterance_end_ms=5000") as connection:
        client = Client(connection)
        await connection.send(bytes(640 * FRAMES))
        ssrc = await only_ssrc(vad, store)
        await say(store, ssrc, *spoken(1, "one"), *spoken(250, "two"), *spoken(550, "three"))
        told = await client.receive(4)
    assert [each["type"] for each in told] == ["Results", "Results", "UtteranceEnd", "Results"]


async def test_nonsense_closes(gateway: GatewayProcess) -> None:
    async with connect(gateway, LISTEN) as connection:
        await connection.send("{}")
        await connection.wait_closed()
        assert connection.close_code == 1003


# --- Breaks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [REALTIME, LISTEN])
async def test_next_socket_of_a_session_goes_on_behind_what_was_told(
    gateway: GatewayProcess, store: Redis, path: str
) -> None:
    opened = await gateway.open()
    async with connect(gateway, path, opened.token) as connection:
        await say(store, opened.ssrc, *spoken(1, "first"))
        while "first" not in (await connection.recv()):
            pass
        record = state.session(opened.ssrc)
        speak = json.dumps({"type": "input_audio_buffer.append", "audio": base64.b64encode(bytes(960)).decode()})
        while not await store.hget(record, "told"):
            await connection.send(speak if path == REALTIME else bytes(640))
            await asyncio.sleep(0.02)
        connection.transport.abort()
    await say(store, opened.ssrc, *spoken(100, "second"))
    async with connect(gateway, path, opened.token) as connection:
        while "second" not in (said := str(await connection.recv())):
            assert "first" not in said


async def test_session_of_a_socket_ends_with_it(gateway: GatewayProcess, store: Redis, vad: VadHost) -> None:
    """Nobody has a token to come back with: its place is free at once."""
    async with connect(gateway, LISTEN) as connection:
        await connection.send(bytes(640))
        ssrc = await only_ssrc(vad, store)
        connection.transport.abort()
    await holds("the goodbye", lambda: (ssrc, BYE) in vad.notices)
    while await store.hget(state.session(ssrc), "state") != b"closed":
        pass


# --- Telephone audio ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("encoding", "codec"), [(Encoding.MULAW, "pcm_mulaw"), (Encoding.ALAW, "pcm_alaw")])
def test_telephone_audio_is_what_ffmpeg_reads(encoding: Encoding, codec: str) -> None:
    coded = bytes(range(256)) * 5
    context: Any = av.CodecContext.create(codec, "r")
    context.sample_rate, context.layout, context.format = 16_000, "mono", "s16"
    expected = np.concatenate([frame.to_ndarray().ravel() for frame in context.decode(av.Packet(coded))])
    framer = Framer(AudioFormat(encoding=encoding, rate=16_000))
    found = np.frombuffer(b"".join(framer.take(coded)), ">i2")
    np.testing.assert_array_equal(found, expected)


async def test_stopping_gateway_lets_a_caller_finish_the_sentence(start: Start, vad: VadHost, store: Redis) -> None:
    """It has no session to come back to: what it says until it pauses is still sent on, and told."""
    gateway = await (await start(DRAIN_TIMEOUT_S=0).ready()).takes_callers()
    spoken = bytes(FRAMES * 640)
    async with connect(gateway, LISTEN) as connection:
        await connection.send(spoken)
        ssrc = await only_ssrc(vad, store)
        await vad.heard(ssrc, FRAMES)
        await say(store, ssrc, event(EventKind.SPEECH_STARTED, 1), event(EventKind.PARTIAL, 1, "I still", "I"))
        assert "I still" in str(await connection.recv())
        gateway.terminate()
        await holds("it stops", lambda: gateway.health() != 200)
        await connection.send(spoken)
        await vad.heard(ssrc, 2 * FRAMES)
        await say(store, ssrc, event(EventKind.SPEECH_STOPPED, 1), event(EventKind.FINAL, 1, "I still speak"))
        told = ""
        with contextlib.suppress(websockets.ConnectionClosed):
            while True:
                told += str(await connection.recv())
    assert "I still speak" in told
    assert connection.close_code == 1012
    assert notices(vad, ssrc) == [BYE]
