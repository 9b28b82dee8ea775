"""Deepgram's live transcription: its query parameters, and the messages for each kind of transcript."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest
from redis.asyncio import Redis
from starlette.datastructures import QueryParams
from starlette.types import Message
from starlette.websockets import WebSocket

from images.gateway.tests.served_gateway import SocketClient, make_gateway, serving_gateway
from voice_gateway.audio import AudioFormat, Encoding
from voice_gateway.audio_socket import NORMAL_END, CloseReason
from voice_gateway.client_socket import SocketArguments
from voice_gateway.listen import DeepgramQuery, DeepgramSocket, normalize_text, parse_session_settings
from voice_gateway.refusals import Refusal
from voice_gateway.session_routes import SessionRequest, open_session
from voice_gateway.socket_lease import SocketLease
from voice_runtime import state
from voice_runtime.sessions import Session, SessionKind, SessionState
from voice_runtime.store import StoreSettings, connect
from voice_runtime.transcripts import EventKind, TimedWord, Transcript

RAW = "encoding=linear16&sample_rate=16000"
SESSION_ID = "s-1"
CALLER_SESSIONS = state.build_caller_sessions_key("127.0.0.1")


def parse(query: str) -> DeepgramQuery:
    return DeepgramQuery.parse(QueryParams(query))


def why_refused(query: str) -> str:
    with pytest.raises(Refusal) as caught:
        parse(query)
    assert (caught.value.status_code, caught.value.error) == (400, "bad request")
    return caught.value.detail


# --- Query parameters -----------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["linear16", "mulaw", "alaw"])
def test_raw_audio_has_a_sample_rate_of_8000_to_48000(encoding: str) -> None:
    """This is the range in docs/clients.md."""
    for rate in (8000, 16_000, 48_000):
        assert parse(f"encoding={encoding}&sample_rate={rate}").audio_format.rate == rate
    for query in (f"encoding={encoding}&sample_rate=7999", f"encoding={encoding}&sample_rate=48001"):
        assert why_refused(query).startswith("sample_rate: ")
    assert f"sample_rate: {encoding} needs one" in why_refused(f"encoding={encoding}")


def test_raw_audio_has_one_or_two_channels() -> None:
    assert parse(RAW).audio_format == AudioFormat(encoding=Encoding.PCM16, rate=16_000, channels=1)
    assert parse(f"{RAW}&channels=2").audio_format.channels == 2
    for channels in (0, 3):
        assert why_refused(f"{RAW}&channels={channels}").startswith("channels: ")


@pytest.mark.parametrize(
    ("query", "encoding"),
    [
        ("", Encoding.CONTAINER),
        ("encoding=flac&sample_rate=44100", Encoding.CONTAINER),
        ("encoding=ogg-opus&channels=2", Encoding.CONTAINER),
        ("encoding=opus&sample_rate=48000", Encoding.OPUS),
    ],
)
def test_other_audio_describes_itself(query: str, encoding: Encoding) -> None:
    """Its sample rate and channels are those of its packets or its container, regardless of the parameters."""
    assert parse(query).audio_format == AudioFormat(encoding=encoding)


def test_only_raw_audio_of_two_channels_is_split() -> None:
    assert parse(f"{RAW}&channels=2&multichannel=true").has_separate_channels
    assert not parse(f"{RAW}&channels=2").has_separate_channels, "channels are mixed by default"
    assert not parse(f"{RAW}&multichannel=true").has_separate_channels
    assert not parse("encoding=opus&multichannel=true").has_separate_channels
    for encoding in ("opus", "ogg-opus", "flac"):
        assert "multichannel: " in why_refused(f"encoding={encoding}&channels=2&multichannel=true")


@pytest.mark.parametrize(
    ("query", "end_of_turn_ms"),
    [("", None), ("endpointing=true", None), ("endpointing=0", 0), ("endpointing=300", 300),
     ("endpointing=5000", 5000), ("endpointing=false", 5000)],
)  # fmt: skip
def test_endpointing_is_the_silence_that_ends_an_utterance(query: str, end_of_turn_ms: int | None) -> None:
    assert parse(query).end_of_turn_ms == end_of_turn_ms


@pytest.mark.parametrize("query", ["endpointing=-1", "endpointing=5001", "endpointing=maybe", "utterance_end_ms=-1"])
def test_an_invalid_silence_is_refused(query: str) -> None:
    assert why_refused(query).startswith(query.partition("=")[0])


@pytest.mark.parametrize(
    ("query", "settings"),
    [
        ("", {"language": None, "prompt": None, "redact": []}),
        ("language=de", {"language": "de", "prompt": None, "redact": []}),
        ("language=multi", {"language": None, "prompt": None, "redact": []}),
        ("keyterm=Valkey%20cluster&keywords=Voxtral:2", {"language": None, "prompt": "Valkey cluster, Voxtral",
                                                         "redact": []}),
        ("redact=pii&redact=pci", {"language": None, "prompt": None, "redact": ["card", "email"]}),
        ("redact=false", {"language": None, "prompt": None, "redact": []}),
    ],
)  # fmt: skip
def test_session_settings_are_in_the_query(query: str, settings: Mapping[str, object]) -> None:
    assert parse_session_settings(QueryParams(query)) == settings


def test_unsupported_redactions_are_named() -> None:
    with pytest.raises(Refusal, match="redact: numbers, ssn is not taken out here; pci, ") as caught:
        parse_session_settings(QueryParams("redact=ssn&redact=numbers&redact=pci"))
    assert caught.value.status_code == 400


def test_text_without_punctuation_keeps_apostrophes_hyphens_and_redactions() -> None:
    assert normalize_text("It's a Follow-Up, [card] - ok? [Laughs") == "it's a follow-up [card] - ok laughs"
    assert normalize_text("... !") == ""


# --- Messages -------------------------------------------------------------------------------------------


def words(*timed: tuple[str, int, int, float]) -> list[TimedWord]:
    return [TimedWord(text=text, start_ms=start, end_ms=end, confidence=each) for text, start, end, each in timed]


def transcript(kind: EventKind, start_ms: int = 0, end_ms: int = 0, **fields: Any) -> Transcript:
    return Transcript(kind=kind, utterance=1 + start_ms // 20, start_ms=start_ms, end_ms=end_ms, **fields)


HELLO = transcript(
    EventKind.FINAL, 500, 2250, text="Hello, Ann.", words=words(("Hello,", 750, 1000, 0.5), ("Ann.", 1250, 2000, 1.0))
)


class Served:
    """The messages of a socket for transcripts, without its connection."""

    def __init__(self, socket: DeepgramSocket, monkeypatch: pytest.MonkeyPatch) -> None:
        self._socket = socket
        self.commits = 0
        monkeypatch.setattr(socket, "_commit_audio", self._count_commit)

    async def _count_commit(self) -> None:
        self.commits += 1

    async def receive(self, text: str) -> CloseReason | None:
        return await self._socket._handle_control_message(text)

    def is_checkpoint(self, event: Transcript) -> bool:
        return self._socket._is_checkpoint(event)

    def hear(self, *transcripts: Transcript) -> list[Mapping[str, Any]]:
        return [message for each in transcripts for message in self._socket._convert_event(each)]

    @property
    def timed_messages(self) -> list[Mapping[str, Any]]:
        """The messages that a timer has enqueued."""
        outbox = self._socket._outbox
        return [outbox.get_nowait() for _ in range(outbox.qsize())]

    def end(self) -> list[Mapping[str, Any]]:
        return list(self._socket._build_final_messages())


@pytest.fixture
async def listening(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes sockets for a query."""
    store = connect(StoreSettings(host="127.0.0.1", port=1, user="default", tls=False))  # it is not used
    gateway = make_gateway(store)
    session = Session(1, SESSION_ID, SessionState.OPEN, SessionKind.GATEWAY, "caller", int(time.time()) + 60)
    sockets = []

    async def receive() -> Message:
        raise AssertionError

    async def send(_: Message) -> None:
        raise AssertionError

    def listen(query: str = "", language: str | None = None) -> Served:
        scope = {"type": "websocket", "path": "/v1/listen", "query_string": f"{RAW}&{query}".encode(), "headers": []}
        spoken = replace(session, language=language)
        arguments = SocketArguments(
            spoken, SocketLease(store, session.ssrc), 0, session_outlives_socket=False, start_ms=0
        )
        sockets.append(DeepgramSocket(gateway, WebSocket(scope, receive, send), arguments))
        return Served(sockets[-1], monkeypatch)

    yield listen
    for each in sockets:
        each._rtp.close()
    await store.aclose()


def message_types(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    return [message["type"] for message in messages]


async def test_a_result_has_deepgrams_fields(listening: Any) -> None:
    (result,) = listening().hear(HELLO)
    assert result == {
        "type": "Results",
        "channel_index": [0, 1],
        "start": 0.5,
        "duration": 1.75,
        "is_final": True,
        "speech_final": True,
        "from_finalize": False,
        "channel": {
            "alternatives": [
                {
                    "transcript": "Hello, Ann.",
                    "confidence": 0.75,
                    "words": [
                        {"word": "hello", "punctuated_word": "Hello,", "start": 0.75, "end": 1.0, "confidence": 0.5},
                        {"word": "ann", "punctuated_word": "Ann.", "start": 1.25, "end": 2.0, "confidence": 1.0},
                    ],
                }
            ]
        },
        "metadata": {
            "request_id": SESSION_ID,
            "model_uuid": SESSION_ID,
            "model_info": {"name": "whisper", "version": "", "arch": "whisper"},
        },
    }


async def test_text_without_words_has_no_confidence(listening: Any) -> None:
    (result,) = listening().hear(transcript(EventKind.FINAL, text="Hello"))
    assert result["channel"]["alternatives"] == [{"transcript": "Hello", "confidence": 0.0, "words": []}]


async def test_speech_final_is_false_for_a_part_of_an_utterance(listening: Any) -> None:
    socket = listening("interim_results=true")
    part = transcript(EventKind.FINAL, text="one", speech_final=False)
    partial = transcript(EventKind.PARTIAL, text="two")
    results = socket.hear(part, partial, HELLO)
    assert [(each["is_final"], each["speech_final"]) for each in results] == [
        (True, False), (False, False), (True, True)
    ]  # fmt: skip


@pytest.mark.parametrize("query", ["", "interim_results=true"])
async def test_empty_text_is_only_sent_as_the_answer_to_finalize(listening: Any, query: str) -> None:
    silent = transcript(EventKind.FINAL)
    assert listening(query).hear(silent) == []
    (result,) = listening(query).hear(silent.model_copy(update={"commit": True}))
    assert (result["from_finalize"], result["channel"]["alternatives"][0]["transcript"]) == (True, "")


async def test_gaps_and_the_end_of_a_session_have_no_message(listening: Any) -> None:
    socket = listening("interim_results=true&vad_events=true")
    assert socket.hear(transcript(EventKind.GAP), transcript(EventKind.END)) == []


@pytest.mark.parametrize("kind", EventKind)
async def test_only_a_final_transcript_need_not_be_repeated(listening: Any, kind: EventKind) -> None:
    """The next socket of a session continues after the last one that was delivered."""
    assert listening().is_checkpoint(transcript(kind)) == (kind is EventKind.FINAL)


@pytest.mark.parametrize(
    ("message", "commits", "end"),
    [("KeepAlive", 0, None), ("Configure", 0, None), ("Finalize", 1, None), ("CloseStream", 0, NORMAL_END)],
)
async def test_control_messages_finalize_or_end_a_stream(
    listening: Any, message: str, commits: int, end: CloseReason | None
) -> None:
    socket = listening()
    assert await socket.receive(json.dumps({"type": message})) == end
    assert socket.commits == commits


SPEECH = [
    transcript(EventKind.SPEECH_STARTED, 500),
    transcript(EventKind.PARTIAL, 500, text="Hello"),
    transcript(EventKind.SPEECH_STOPPED, 500),
    HELLO,
]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["Results"]),
        ("interim_results=true", ["Results", "Results"]),
        ("vad_events=true", ["SpeechStarted", "Results"]),
    ],
)
async def test_optional_messages_are_sent_on_request(listening: Any, query: str, expected: list[str]) -> None:
    assert message_types(listening(query).hear(*SPEECH)) == expected


async def test_start_of_speech_has_its_time(listening: Any) -> None:
    (started,) = listening("vad_events=true").hear(transcript(EventKind.SPEECH_STARTED, 1500))
    assert started == {"type": "SpeechStarted", "channel": [0, 1], "timestamp": 1.5}


@pytest.mark.parametrize(("query", "text"), [("", "Twenty three."), ("numerals=true", "23.")])
async def test_numbers_are_digits_in_the_language_of_the_session(listening: Any, query: str, text: str) -> None:
    heard = transcript(EventKind.FINAL, text="Twenty three.")
    (result,) = listening(query, language="en").hear(heard)
    assert result["channel"]["alternatives"][0]["transcript"] == text


@pytest.mark.parametrize(("query", "text"), [("", "Hello, Ann."), ("punctuate=false", "hello ann")])
async def test_text_is_punctuated_by_default(listening: Any, query: str, text: str) -> None:
    (result,) = listening(query).hear(HELLO)
    best = result["channel"]["alternatives"][0]
    assert best["transcript"] == " ".join(word["punctuated_word"] for word in best["words"]) == text


# --- The end of an utterance ----------------------------------------------------------------------------

HELLO_ENDS = {"type": "UtteranceEnd", "channel": [0, 1], "last_word_end": 2.0}


async def test_an_utterance_ends_when_its_silence_has_passed(listening: Any) -> None:
    socket = listening("utterance_end_ms=0")
    socket.hear(HELLO)
    await asyncio.sleep(0.05)
    assert socket.timed_messages == [HELLO_ENDS]
    assert socket.hear(transcript(EventKind.SPEECH_STARTED, 9000)) == [], "it is reported once"
    without_words = transcript(EventKind.FINAL, 500, 2250, text="Hello")
    socket.hear(without_words)
    await asyncio.sleep(0.05)
    assert socket.timed_messages == [HELLO_ENDS | {"last_word_end": 2.25}]


async def test_the_silence_is_in_milliseconds(listening: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    socket = listening("utterance_end_ms=1500")
    call_later = Mock()
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", call_later)
    socket.hear(HELLO)
    monkeypatch.undo()
    ((delay_s, _), _) = call_later.call_args
    assert delay_s == 1.5
    assert socket.timed_messages == []


@pytest.mark.parametrize(
    ("query", "heard"),
    [
        ("", HELLO),
        ("utterance_end_ms=0", HELLO.model_copy(update={"speech_final": False})),
        ("utterance_end_ms=0", transcript(EventKind.FINAL, 500, 2250, commit=True)),
    ],
    ids=["not requested", "the utterance continues", "no words"],
)
async def test_an_utterance_does_not_end(listening: Any, query: str, heard: Transcript) -> None:
    socket = listening(query)
    assert len(socket.hear(heard)) == 1
    await asyncio.sleep(0.05)
    assert socket.timed_messages == []
    assert socket.hear(transcript(EventKind.SPEECH_STARTED, 60_000)) == []
    assert message_types(socket.end()) == ["Metadata"]


@pytest.mark.parametrize(("start_ms", "ended"), [(4000, True), (3999, False), (60_000, True)])
async def test_an_utterance_ends_before_later_speech(listening: Any, start_ms: int, ended: bool) -> None:
    """A late final transcript does not hide the silence, which is measured in the audio."""
    socket = listening("utterance_end_ms=2000&vad_events=true")
    socket.hear(HELLO)
    messages = socket.hear(transcript(EventKind.SPEECH_STARTED, start_ms))
    assert message_types(messages) == [*(["UtteranceEnd"] if ended else []), "SpeechStarted"]
    assert message_types(socket.end()) == ["Metadata"], "speech that continues is not the end of an utterance"


async def test_speech_that_continues_stops_the_timer(listening: Any) -> None:
    socket = listening("utterance_end_ms=20")
    socket.hear(HELLO, transcript(EventKind.SPEECH_STARTED, 2010))
    await asyncio.sleep(0.1)
    assert socket.timed_messages == []


# --- The end of the stream ------------------------------------------------------------------------------


async def test_the_last_message_describes_the_stream(listening: Any) -> None:
    socket = listening("utterance_end_ms=5000")
    socket.hear(HELLO)
    socket.hear(transcript(EventKind.GAP, 100, 200))
    ended, metadata = socket.end()
    assert ended == HELLO_ENDS
    created = datetime.fromisoformat(metadata["created"])
    assert abs((datetime.now(UTC) - created).total_seconds()) < 60
    assert metadata == {
        "type": "Metadata",
        "transaction_key": "deprecated",
        "request_id": SESSION_ID,
        "sha256": "",
        "created": metadata["created"],
        "duration": 2.25,
        "channels": 1,
    }


async def test_a_stream_without_speech_has_no_duration(listening: Any) -> None:
    (metadata,) = listening().end()
    assert metadata["duration"] == 0


@pytest.mark.parametrize("ending", [b"", '{"type": "CloseStream"}'], ids=["empty message", "CloseStream"])
async def test_a_stream_ends_after_its_last_transcripts(store: Redis, ending: bytes | str) -> None:
    """An empty message ended a stream before Deepgram's CloseStream existed."""
    async with serving_gateway(store) as gateway, SocketClient(gateway, f"/v1/listen?{RAW}") as client:
        client.send(bytes(640))
        client.send({"type": "KeepAlive"})
        client.send(ending)
        await client.publish(HELLO, transcript(EventKind.END, 5000, 5000))
        messages, code = await client.receive_until_close()
    assert (message_types(messages), code) == (["Results", "Metadata"], 1000)


async def test_a_stream_of_two_channels_ends_after_the_last_one(store: Redis) -> None:
    path = f"/v1/listen?{RAW}&channels=2&multichannel=true"
    async with serving_gateway(store) as gateway, SocketClient(gateway, path) as client:
        client.send(bytes(1280))
        client.send({"type": "CloseStream"})
        ssrcs: Any = await store.zrange(CALLER_SESSIONS, 0, -1)
        for ssrc in ssrcs:
            await gateway.transcripts.publish(int(ssrc), transcript(EventKind.END, 5000, 5000))
        messages, code = await client.receive_until_close()
    assert (message_types(messages), messages[-1]["channels"], code) == (["Metadata"], 2, 1000)


async def test_sessions_of_all_channels_end_with_the_socket(store: Redis) -> None:
    async with serving_gateway(store) as gateway:
        async with SocketClient(gateway, f"/v1/listen?{RAW}&channels=2&multichannel=true") as client:
            ssrcs: Any = await store.zrange(CALLER_SESSIONS, 0, -1)
            client.send(bytes(2 * 16_000))
            client.disconnect()
            await client.wait_until_served()
        assert await store.zrange(CALLER_SESSIONS, 0, -1) == []
        ended = [await gateway.sessions.read(int(ssrc)) for ssrc in ssrcs]
        assert [session and session.received_s for session in ended] == [0.5, 0.5], "each channel lasts half a second"


@pytest.mark.parametrize("has_token", [False, True])
async def test_a_refused_channel_ends_the_session_that_was_opened_for_the_socket(store: Redis, has_token: bool) -> None:
    """A session whose token the caller has presented remains."""
    async with serving_gateway(store, caller_sessions=1) as gateway:
        key = "any"
        if has_token:
            request = SessionRequest.model_validate({"transport": "websocket"})
            key, _ = gateway.tokens.create((await open_session(gateway, "127.0.0.1", request)).id)
        client = SocketClient(gateway, f"/v1/listen?{RAW}&channels=2&multichannel=true", key)
        assert await client.connect_and_be_denied() == 429
        assert len(await store.zrange(CALLER_SESSIONS, 0, -1)) == int(has_token)
        assert gateway.connections == 0


@pytest.mark.parametrize("text", ["{}", '{"type": "Unknown"}', "no JSON"])
async def test_other_text_closes_the_stream(store: Redis, text: str) -> None:
    async with serving_gateway(store) as gateway, SocketClient(gateway, f"/v1/listen?{RAW}") as client:
        client.send(text)
        messages, code = await client.receive_until_close()
    assert (messages, code) == ([], 1003)
