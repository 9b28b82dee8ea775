"""Events for other services' clients, and admission."""

import asyncio
import base64
import contextlib
import json
import time
from typing import Any

import av
import numpy as np
import openai
import pytest
import websockets
from redis.asyncio import Redis

from images.conftest import BUSY_TIMEOUT_S
from images.gateway.tests.conftest import Start
from images.gateway.tests.issuer import AUDIENCE, Issuer
from images.gateway.tests.running import APP, BYE, GatewayProcess, Hosts, VadHost, holds, leave_while_opening
from images.gateway.tests.test_audio_socket import assert_is_the_tone, opus, recorded, tone
from voice_blueprint.contract.network import Tier
from voice_blueprint.contract.session_api import MAX_END_OF_TURN_MS
from voice_blueprint.contract.state import SessionField
from voice_gateway.audio import AudioFormat, Encoding, Framer
from voice_gateway.realtime import MAX_APPEND_BYTES
from voice_runtime import state
from voice_runtime.sessions import SessionState
from voice_runtime.transcripts import EventKind, TimedWord, Transcript, TranscriptStore

pytestmark = pytest.mark.usefixtures("hosts")

TRANSCRIBED = "conversation.item.input_audio_transcription"
LISTEN = "/v1/listen?encoding=linear16&sample_rate=16000&interim_results=true"
REALTIME = "/v1/realtime?intent=transcription"
FRAMES = 25
HELD_BACK = 3
"""Maximum number of frames that a resampler buffers."""
DEPLOYMENTS_END_OF_TURN_MS = 600
"""Setting of the gateway in these tests."""


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
    """Return the SSRC of the only session with audio and a record; packets of the previous caller may be in flight."""
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while True:
            for ssrc in {packet.ssrc for packet in list(vad.packets)}:
                if (
                    await store.hget(state.build_session_key(ssrc), SessionField.STATE)
                    == SessionState.OPEN.value.encode()
                ):
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
        assert await TranscriptStore(store).publish(ssrc, each, number)


def spoken(utterance: int, text: str, committed: str = "", **more: Any) -> list[Transcript]:
    """Return the transcripts of an engine for an utterance."""
    return [
        event(EventKind.SPEECH_STARTED, utterance),
        *([event(EventKind.PARTIAL, utterance, f"{committed} something else", committed)] if committed else ()),
        event(EventKind.SPEECH_STOPPED, utterance),
        event(EventKind.FINAL, utterance, text, text, **more),
    ]


# --- Who is let in --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [REALTIME, LISTEN])
async def test_session_token_is_a_key_if_api_gateway_authenticates(start: Start, path: str) -> None:
    gateway = await (await start(AUTHORIZER="iam").ready()).accepts_callers()
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


async def test_refusals_contain_a_remedy(gateway: GatewayProcess, hosts: Hosts) -> None:
    assert "encoding" in (await refused(gateway, "/v1/listen?encoding=amr-nb"))[1]
    assert "channels" in (await refused(gateway, f"{LISTEN}&channels=6"))[1]
    assert "sample_rate" in (await refused(gateway, "/v1/listen?encoding=linear16"))[1]
    assert "sample_rate" in (await refused(gateway, "/v1/listen?encoding=mulaw&sample_rate=4000"))[1]
    assert "language" in (await refused(gateway, f"{LISTEN}&language=English%20please"))[1]
    assert "transcription" in (await refused(gateway, "/v1/realtime?intent=conversation"))[1]
    async with hosts.away():
        await gateway.answers(503)
        assert (await refused(gateway, LISTEN))[0] == 503


@pytest.mark.parametrize(
    ("path", "offered", "chosen"),
    [
        (LISTEN, ["token", "KEY"], "token"),
        (LISTEN, ["bearer", "KEY"], "bearer"),
        (REALTIME, ["realtime", "openai-insecure-api-key.KEY", "openai-beta.realtime-v1"], "realtime"),
    ],
)
async def test_browsers_send_their_key_as_a_subprotocol(
    start: Start, path: str, offered: list[str], chosen: str
) -> None:
    gateway = await (await start(AUTHORIZER="iam").ready()).accepts_callers()
    opened = await gateway.open()
    place = f"ws://127.0.0.1:{gateway.media_port}{path}"
    for key, is_right in (("wrong", False), (opened.token, True)):
        protocols: Any = [each.replace("KEY", key) for each in offered]
        if not is_right:
            with pytest.raises(websockets.InvalidStatus, match="401"):
                await websockets.connect(place, subprotocols=protocols)
            continue
        async with websockets.connect(place, subprotocols=protocols) as connection:
            assert connection.subprotocol == chosen


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
    """Wait until the engine would read this value for a session with audio."""
    async with asyncio.timeout(BUSY_TIMEOUT_S):
        while True:
            for ssrc in {packet.ssrc for packet in list(vad.packets)}:
                if await store.hget(state.build_session_key(ssrc), SessionField.END_OF_TURN_MS) == str(wanted).encode():
                    return
            await asyncio.sleep(0.01)


async def test_end_of_turn_silence_is_set_per_session(gateway: GatewayProcess, store: Redis, vad: VadHost) -> None:
    async with connect(gateway, f"{LISTEN}&endpointing=300") as connection:
        await connection.send(bytes(6400))
        await end_of_turn_ms(vad, store, 300)
    async with connect(gateway, f"{LISTEN}&endpointing=false") as connection:
        await connection.send(bytes(6400))
        await end_of_turn_ms(vad, store, MAX_END_OF_TURN_MS)
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


async def test_deltas_only_append_and_each_utterance_is_an_item(
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


async def test_without_turn_detection_each_commit_is_an_item(
    gateway: GatewayProcess, store: Redis, vad: VadHost
) -> None:
    async with connect(gateway, REALTIME) as connection:
        client = Client(connection)
        await client.begin(turn_detection=None)
        await client.append()
        ssrc = await only_ssrc(vad, store)
        await client.send("input_audio_buffer.commit")
        await holds("the mark", lambda: notices(vad, ssrc) == [APP])
        await say(store, ssrc, *spoken(1, "one"), *spoken(10, "two", commit=True))
        told = await client.receive(4)
        assert [each["type"].rpartition(".")[2] for each in told] == ["committed", "delta", "delta", "completed"]
        assert told[-1]["transcript"] == "one two" == "".join(each.get("delta", "") for each in told)
        assert told[-1]["usage"] == {"type": "duration", "seconds": 1.0}
        # Without audio, a commit is answered immediately, and never with an error.
        await client.send("input_audio_buffer.commit")
        committed, completed = await client.receive(2)
        assert (committed["previous_item_id"], completed["transcript"]) == (told[0]["item_id"], "")
        await client.append()
        await vad.heard(ssrc, 2 * FRAMES - HELD_BACK)
        await client.send("input_audio_buffer.clear")
        assert (await client.receive())[0]["type"] == "input_audio_buffer.cleared"
        await say(store, ssrc, *spoken(FRAMES + 2, "dropped", commit=True))
        await client.append()
        await client.send("input_audio_buffer.commit")
        await say(store, ssrc, *spoken(2 * FRAMES + 2, "kept", commit=True))
        assert [each.get("transcript") for each in await client.receive(3)] == [None, None, "kept"]


async def test_an_error_is_reported_without_closing_the_socket(gateway: GatewayProcess) -> None:
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
            await client.send(kind, event_id=f"mine of {kind}", **fields)
            (error,) = await client.receive()
            assert error["type"] == "error"
            assert error["error"]["type"] == "invalid_request_error"
            assert error["error"]["event_id"] == f"mine of {kind}"
        for nonsense in ("no JSON", "[]", json.dumps({"type": "x", "event_id": 7})):
            await connection.send(nonsense)
            (error,) = await client.receive()
            assert error["error"]["event_id"] is None
        await client.append()


async def test_audio_of_any_size_is_appended(gateway: GatewayProcess, store: Redis, vad: VadHost) -> None:
    """Three bytes are a sample and a half; other sockets reject messages of 64 KiB and more."""
    samples = np.random.default_rng(1).integers(-9000, 9000, 40_000).astype("<i2")
    audio = samples.tobytes()
    async with connect(gateway, REALTIME) as connection:
        client = Client(connection)
        await client.begin(format={"type": "audio/pcm", "rate": 16_000}, turn_detection=None)
        for piece in (audio[:3], audio[3:1001], audio[1001:]):
            await client.send("input_audio_buffer.append", audio=base64.b64encode(piece).decode())
        ssrc = await only_ssrc(vad, store)
        await vad.heard(ssrc, 125)
        np.testing.assert_array_equal(vad.audio(ssrc), samples)
        assert connection.close_code is None


@pytest.mark.nightly
async def test_an_append_may_be_as_large_as_openai_accepts(gateway: GatewayProcess, store: Redis, vad: VadHost) -> None:
    async with connect(gateway, REALTIME) as connection:
        client = Client(connection)
        await client.begin(turn_detection=None)
        await client.send("input_audio_buffer.append", audio=base64.b64encode(bytes(MAX_APPEND_BYTES)).decode())
        await vad.heard(await only_ssrc(vad, store), 50)
        with contextlib.suppress(websockets.ConnectionClosed):
            more = base64.b64encode(bytes(MAX_APPEND_BYTES + 99_999)).decode()
            await client.send("input_audio_buffer.append", audio=more)
        await connection.wait_closed()
        assert connection.close_code == 1009


async def test_audio_cleared_between_turns_is_not_transcribed(
    gateway: GatewayProcess, store: Redis, vad: VadHost
) -> None:
    """A turn that the client knows to be complete remains; the current one is discarded, and so are queued ones."""
    async with connect(gateway, REALTIME) as connection:
        client = Client(connection)
        await client.begin(turn_detection={"type": "server_vad"})
        await client.append()
        ssrc = await only_ssrc(vad, store)
        await vad.heard(ssrc, FRAMES - HELD_BACK)
        started, stopped, final = spoken(1, "over")
        await say(store, ssrc, started, stopped)
        kinds = [each["type"].rpartition(".")[2] for each in await client.receive(3)]
        assert kinds == ["speech_started", "speech_stopped", "committed"]
        await client.send("input_audio_buffer.clear")
        await say(store, ssrc, final)
        kinds = [each["type"].rpartition(".")[2] for each in await client.receive(3)]
        assert kinds == ["cleared", "delta", "completed"]
        await client.append()
        await vad.heard(ssrc, 2 * (FRAMES - HELD_BACK))
        started, stopped, final = spoken(FRAMES + 2, "cleared")
        await say(store, ssrc, started)
        await client.receive()
        await client.append(50 * FRAMES)
        await client.send("input_audio_buffer.clear")
        assert (await client.receive())[0]["type"] == "input_audio_buffer.cleared"
        await holds("the marks", lambda: notices(vad, ssrc) == [APP] * 2)
        heard = len(vad.of(ssrc))
        assert heard < 20 * FRAMES, "what waits is dropped"
        await say(store, ssrc, stopped, final.model_copy(update={"commit": True}))
        await client.append()
        await say(store, ssrc, *spoken(heard + 2, "kept"))
        told = await client.receive(5)
    kinds = [each["type"].rpartition(".")[2] for each in told]
    assert kinds == ["speech_started", "speech_stopped", "committed", "delta", "completed"]
    assert told[-1]["transcript"] == "kept"


async def test_an_update_sets_the_language_of_the_session(gateway: GatewayProcess, store: Redis, vad: VadHost) -> None:
    async with connect(gateway, REALTIME) as connection:
        client = Client(connection)
        await client.begin(transcription={"model": "x", "language": "en"}, format={"type": "audio/pcma"})
        await client.send("input_audio_buffer.append", audio=base64.b64encode(b"\xd5" * 8000).decode())
        ssrc = await only_ssrc(vad, store)
        assert await store.hget(state.build_session_key(ssrc), "language") == b"en"
        await vad.heard(ssrc, FRAMES)
        assert np.abs(vad.audio(ssrc)).max() <= 10, "A-law's silence"


async def test_page_connects_with_a_client_secret_of_a_server(
    start: Start, issuer: Issuer, store: Redis, vad: VadHost
) -> None:
    """With OpenAI's own package; the server's settings apply to the page, which need not send them again."""
    gateway = await start(JWT_ISSUER=issuer.url, JWT_AUDIENCE=AUDIENCE).ready()
    base = f"http://127.0.0.1:{gateway.media_port}/v1"
    about: Any = {"format": {"type": "audio/pcmu"}, "transcription": {"language": "de"}, "turn_detection": None}
    async with openai.AsyncOpenAI(base_url=base, api_key=issuer.token(), max_retries=5) as server:
        with pytest.raises(openai.BadRequestError, match="an agent"):
            await server.realtime.client_secrets.create(session={"type": "realtime"})
        made = await server.realtime.client_secrets.create(session={"type": "transcription", "audio": {"input": about}})
        assert made.session.type == "transcription"
        assert made.expires_at > time.time()
    async with openai.AsyncOpenAI(base_url=base, api_key="wrong", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError):
            await stranger.realtime.client_secrets.create()
    async with openai.AsyncOpenAI(base_url=base, api_key=made.value, max_retries=0) as page:
        with pytest.raises(openai.PermissionDeniedError):
            await page.realtime.client_secrets.create()
        async with page.realtime.connect(extra_query={"intent": "transcription"}) as connection:
            created: Any = await connection.recv()
            assert created.session.audio.input.format.type == "audio/pcmu"
            assert created.session.audio.input.turn_detection is None
            await connection.input_audio_buffer.append(audio=base64.b64encode(b"\xff" * 8000).decode())
            ssrc = await only_ssrc(vad, store)
            assert await store.hget(state.build_session_key(ssrc), SessionField.LANGUAGE) == b"de"
            await vad.heard(ssrc, 40)  # a second, less the resampler's buffer


# --- Deepgram's -----------------------------------------------------------------------------------------


async def test_listen_sends_interim_final_and_end_of_utterance(
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


async def test_end_of_utterance_follows_the_audio_despite_a_late_final(
    gateway: GatewayProcess, store: Redis, vad: VadHost
) -> None:
    async with connect(gateway, f"{LISTEN}&utterance_end_ms=5000") as connection:
        client = Client(connection)
        await connection.send(bytes(640 * FRAMES))
        ssrc = await only_ssrc(vad, store)
        await say(store, ssrc, *spoken(1, "one"), *spoken(250, "two"), *spoken(550, "three"))
        told = await client.receive(4)
    assert [each["type"] for each in told] == ["Results", "Results", "UtteranceEnd", "Results"]


async def test_browsers_recordings_and_opus_packets_are_decoded(
    gateway: GatewayProcess, store: Redis, vad: VadHost
) -> None:
    """Without an encoding, Deepgram reads the container's codec, such as the WebM of a browser's MediaRecorder."""
    webm = list(recorded(tone(1.0, 48_000), "webm", "libopus"))
    for path, messages in (
        ("/v1/listen", webm),
        ("/v1/listen?encoding=opus&sample_rate=48000", opus(tone(1.2, 48_000), packet_ms=20)),
    ):
        async with connect(gateway, path) as connection:
            for message in messages:
                await connection.send(message)
            ssrc = await only_ssrc(vad, store)
            await Client(connection).send("Finalize")
            await holds("the mark", lambda: notices(vad, ssrc) == [APP])  # noqa: B023  within the loop
            assert len(vad.of(ssrc)) >= 45
            assert_is_the_tone(vad.audio(ssrc)[4000:14_000], tolerance=0.2)


async def test_keywords_and_redactions_apply_to_the_session(
    gateway: GatewayProcess, store: Redis, vad: VadHost
) -> None:
    async def record(name: SessionField, wanted: bytes) -> None:
        async with asyncio.timeout(BUSY_TIMEOUT_S):
            while await store.hget(state.build_session_key(await only_ssrc(vad, store)), name) != wanted:
                await asyncio.sleep(0.02)

    async with connect(
        gateway, f"{LISTEN}&keyterm=Voxtral&keyterm=Valkey&redact=pci&redact=email_address"
    ) as connection:
        await connection.send(bytes(6400))
        await record(SessionField.PROMPT, b"Voxtral, Valkey")
        await record(SessionField.REDACT, b"card,email")
    assert "ssn" in (await refused(gateway, f"{LISTEN}&redact=ssn"))[1]
    async with connect(gateway, REALTIME) as connection:
        client = Client(connection)
        await client.begin(transcription={"model": "any", "prompt": "A call", "keywords": ["Valkey"]})
        await client.append()
        await record(SessionField.PROMPT, b"A call. Valkey")


async def test_punctuation_can_be_omitted(gateway: GatewayProcess, store: Redis, vad: VadHost) -> None:
    async with connect(gateway, f"{LISTEN}&punctuate=false") as connection:
        await connection.send(bytes(6400))
        await say(store, await only_ssrc(vad, store), *spoken(1, "It's Monday, [card]"))
        (result,) = await Client(connection).receive()
    (best,) = result["channel"]["alternatives"]
    assert best["transcript"] == "it's monday [card]"
    assert [word["punctuated_word"] for word in best["words"]] == ["it's", "monday", "[card]"]


async def test_word_times_are_correct_after_two_hours_on_one_socket(
    gateway: GatewayProcess, store: Redis, vad: VadHost
) -> None:
    async with connect(gateway, LISTEN) as connection:
        await connection.send(bytes(6400))
        ssrc = await only_ssrc(vad, store)
        for utterance, start_s in ((1, 0.02), (360_000, 7200)):
            await say(store, ssrc, *spoken(utterance, "nine words"))
            (result,) = await Client(connection).receive()
            assert result["start"] == start_s
            assert result["channel"]["alternatives"][0]["words"][0]["start"] == pytest.approx(start_s + 0.04)


@pytest.mark.parametrize(
    ("option", "words"),
    [("&numerals=true", ["about", "23", "people"]), ("", ["about", "twenty", "three", "people"])],
    ids=["requested", "by default"],
)
async def test_numbers_are_only_written_in_digits_where_a_client_requests_it(
    gateway: GatewayProcess, store: Redis, vad: VadHost, option: str, words: list[str]
) -> None:
    async with connect(gateway, f"{LISTEN}{option}&language=en") as connection:
        await connection.send(bytes(6400))
        await say(store, await only_ssrc(vad, store), *spoken(1, "about twenty three people"))
        (result,) = await Client(connection).receive()
    (best,) = result["channel"]["alternatives"]
    assert best["transcript"] == " ".join(words)
    assert [word["punctuated_word"] for word in best["words"]] == words


async def test_two_channels_of_a_client_are_mixed(gateway: GatewayProcess, store: Redis, vad: VadHost) -> None:
    stereo = np.stack([tone(0.5), tone(0.5)], axis=1)
    async with connect(gateway, f"{LISTEN}&channels=2") as connection:
        await connection.send(stereo.tobytes())
        ssrc = await only_ssrc(vad, store)
        await vad.heard(ssrc, 25)
        np.testing.assert_array_equal(vad.audio(ssrc), tone(0.5))


@pytest.mark.parametrize("encoding", ["linear16", "mulaw"])
async def test_channels_are_transcribed_separately(
    gateway: GatewayProcess, store: Redis, vad: VadHost, encoding: str
) -> None:
    """Two speakers of a call, with one channel each."""
    left, right = tone(0.5), np.zeros(8000, "<i2")
    stereo = np.stack([left, right], axis=1).tobytes()
    if encoding == "mulaw":
        codes = np.array([[0x00, 0xFF]] * 8000, np.uint8)  # the maximum level, and silence
        stereo = codes.tobytes()
    address = f"/v1/listen?encoding={encoding}&sample_rate=16000&channels=2&multichannel=true&vad_events=true"
    async with connect(gateway, address) as connection:
        client = Client(connection)
        for begin in range(0, len(stereo), 333):
            await connection.send(stereo[begin : begin + 333])
        await holds("both", lambda: len({packet.ssrc for packet in vad.packets if len(vad.of(packet.ssrc)) >= 25}) == 2)
        ssrcs = {packet.ssrc for packet in vad.packets}
        loud, silent = sorted(ssrcs, key=lambda ssrc: -int(np.abs(vad.audio(ssrc)).max()))
        assert np.abs(vad.audio(silent)).max() == 0
        assert np.abs(vad.audio(loud)).max() >= 8000 - 1
        await say(store, silent, *spoken(1, "I listen."))
        await say(store, loud, *spoken(1, "I speak."))
        told = await client.receive(4)
        results = {each["channel"]["alternatives"][0]["transcript"]: each for each in told if each["type"] == "Results"}
        assert results["I speak."]["channel_index"] == [0, 2]
        assert results["I listen."]["channel_index"] == [1, 2]
        assert sorted(each["channel"] for each in told if each["type"] == "SpeechStarted") == [[0, 2], [1, 2]]
        await client.send("CloseStream")
        await holds("both goodbyes", lambda: {ssrc for ssrc, kind in vad.notices if kind == BYE} == ssrcs)
        for ssrc in ssrcs:
            await say(store, ssrc, event(EventKind.END, 100))
        (metadata,) = await client.receive()
        assert (metadata["type"], metadata["channels"]) == ("Metadata", 2)
        await connection.wait_closed()
        assert connection.close_code == 1000


async def test_malformed_messages_close_the_socket(gateway: GatewayProcess) -> None:
    async with connect(gateway, LISTEN) as connection:
        await connection.send("{}")
        await connection.wait_closed()
        assert connection.close_code == 1003


# --- Breaks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [REALTIME, LISTEN])
async def test_next_socket_of_a_session_continues_after_delivered_transcripts(
    gateway: GatewayProcess, store: Redis, path: str
) -> None:
    opened = await gateway.open()
    async with connect(gateway, path, opened.token) as connection:
        await say(store, opened.ssrc, *spoken(1, "first"))
        while "first" not in (await connection.recv()):
            pass
        record = state.build_session_key(opened.ssrc)
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
    """Without a token, no caller can resume it, so its slot is released immediately."""
    async with connect(gateway, LISTEN) as connection:
        await connection.send(bytes(640))
        ssrc = await only_ssrc(vad, store)
        connection.transport.abort()
    await holds("the goodbye", lambda: (ssrc, BYE) in vad.notices)
    while await store.hget(state.build_session_key(ssrc), "state") != b"closed":
        pass


async def lapse_times(store: Redis) -> list[float]:
    """Return the times at which the caller's active sessions end."""
    active: Any = await store.zrange(state.build_caller_sessions_key("127.0.0.1"), 0, -1, withscores=True)
    return [lapses_at for _, lapses_at in active]


@pytest.mark.parametrize(
    ("path", "sessions"), [(REALTIME, 1), (LISTEN, 1), (f"{LISTEN}&channels=2&multichannel=true", 2)]
)
async def test_session_of_a_client_that_leaves_during_the_opening_ends_after_the_grace_period(
    gateway: GatewayProcess, store: Redis, path: str, sessions: int
) -> None:
    """Its session would otherwise count for an hour."""
    await leave_while_opening(gateway, store, path)
    lapse_at: list[float] = []
    async with asyncio.timeout(BUSY_TIMEOUT_S / 4):
        while len(lapse_at) < sessions or max(lapse_at) > time.time() + 30:
            await asyncio.sleep(0.2)
            lapse_at = await lapse_times(store)
    await asyncio.sleep(0.5)
    assert await lapse_times(store) == lapse_at


# --- Telephone audio ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("encoding", "codec"), [(Encoding.MULAW, "pcm_mulaw"), (Encoding.ALAW, "pcm_alaw")])
def test_g711_decoding_matches_ffmpeg(encoding: Encoding, codec: str) -> None:
    coded = bytes(range(256)) * 5
    context: Any = av.CodecContext.create(codec, "r")
    context.sample_rate, context.layout, context.format = 16_000, "mono", "s16"
    expected = np.concatenate([frame.to_ndarray().ravel() for frame in context.decode(av.Packet(coded))])
    framer = Framer(AudioFormat(encoding=encoding, rate=16_000))
    found = np.frombuffer(b"".join(framer.push(coded)), ">i2")
    np.testing.assert_array_equal(found, expected)


async def test_stopping_gateway_waits_for_the_end_of_a_sentence(start: Start, vad: VadHost, store: Redis) -> None:
    """Its session cannot be resumed, so speech until its next pause is still sent and transcribed."""
    gateway = await (await start(DRAIN_TIMEOUT_S=0).ready()).accepts_callers()
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
