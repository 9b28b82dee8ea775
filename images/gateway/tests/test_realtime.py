"""OpenAI's realtime events of one socket, without a network: its client's events, and the answers to them."""

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from redis.exceptions import RedisError
from starlette.datastructures import QueryParams

from voice_blueprint.contract.session_api import MAX_END_OF_TURN_MS
from voice_gateway import audio_socket
from voice_gateway.audio import MAX_RATE, MIN_RATE, AudioFormat, Encoding
from voice_gateway.client_socket import SocketArguments
from voice_gateway.pacer import Backlog
from voice_gateway.realtime import MAX_EVENT_BYTES, RealtimeAudioFormat, RealtimeSocket
from voice_gateway.refusals import Refusal
from voice_gateway.rtp import COMMIT, FRAME_MS
from voice_runtime.sessions import Session, SessionKind, SessionState
from voice_runtime.transcripts import EventKind, Transcript

FRAME = bytes(640)
TRANSCRIPTION = "conversation.item.input_audio_transcription"
VAD = {"type": "server_vad"}


class Sent:
    """Stands in for the RTP stream: with a host, it records what leaves the gateway."""

    def __init__(self) -> None:
        self.has_host = True
        self.payloads: list[bytes] = []

    def send(self, payload: bytes) -> bool:
        if self.has_host:
            self.payloads.append(payload)
        return self.has_host


class Client:
    """A client of one socket.

    Attributes:
        socket: Its socket.
        sent: What the gateway has forwarded.
        stored: Settings that were stored with the session.
    """

    def __init__(self, socket: RealtimeSocket, sent: Sent, sessions: AsyncMock) -> None:
        self.socket = socket
        self.sent = sent
        self.sessions = sessions

    async def tell(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        """Send an event, and return the answers."""
        assert await self.socket._handle_control_message(json.dumps({"type": kind, **fields})) is None
        await asyncio.sleep(0)
        return self.answers()

    def answers(self) -> list[dict[str, Any]]:
        outbox: Any = self.socket._outbox
        return [outbox.get_nowait() for _ in range(outbox.qsize())]

    async def append(self, audio: bytes) -> list[dict[str, Any]]:
        return await self.tell("input_audio_buffer.append", audio=base64.b64encode(audio).decode())

    async def update(self, **settings: Any) -> dict[str, Any]:
        """Update the input's settings, and return the answer."""
        session = {"type": "transcription", "audio": {"input": settings}}
        (answer,) = await self.tell("session.update", session=session)
        return answer

    async def error(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Send an invalid event, and return the error."""
        (answer,) = await self.tell(kind, **fields)
        assert answer["type"] == "error", answer
        found: dict[str, Any] = answer["error"]
        return found

    def hear(self, kind: EventKind, start_ms: int = 0, text: str = "", **more: Any) -> list[dict[str, Any]]:
        """Return the events for a transcript of half a second."""
        transcript = Transcript(
            kind=kind, utterance=start_ms // 20, text=text, start_ms=start_ms, end_ms=start_ms + 500, **more
        )
        return [dict(each) for each in self.socket._convert_event(transcript)]

    @property
    def stored(self) -> list[dict[str, str]]:
        return [call.kwargs for call in self.sessions.update.call_args_list]


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [each["type"].rpartition(".")[2] for each in events]


def session(**more: Any) -> Session:
    return Session(
        ssrc=7,
        id="s7",
        state=SessionState.OPEN,
        kind=SessionKind.GATEWAY,
        caller="shop",
        expires_at=2_000_000_000,
        **more,
    )


def connect(sent: Sent, monkeypatch: pytest.MonkeyPatch, query: str = "", start_ms: int = 0, **more: Any) -> Client:
    monkeypatch.setattr(audio_socket, "RtpSender", lambda *_: sent)
    sessions = AsyncMock()
    gateway: Any = SimpleNamespace(
        settings=SimpleNamespace(rtp_port=0, idle_timeout_s=30, token_ttl_s=60),
        fleet=SimpleNamespace(languages=frozenset()),
        backlog=Backlog(),
        sessions=sessions,
    )
    websocket: Any = SimpleNamespace(query_params=QueryParams(query), state=SimpleNamespace())
    arguments = SocketArguments(
        session(**more), lease=AsyncMock(), frame_number=1, session_outlives_socket=False, start_ms=start_ms
    )
    return Client(RealtimeSocket(gateway, websocket, arguments), sent, sessions)


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
async def client(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """A client that sends PCM16 at 16 kHz, and has read the answers to its settings."""
    found = connect(sent, monkeypatch)
    found.answers()
    await found.update(format={"type": "audio/pcm", "rate": 16_000})
    yield found
    found.socket._pacer.close()


async def without_turns(client: Client) -> None:
    await client.update(turn_detection=None)


# --- Settings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "rate", "encoding", "samples_per_s"),
    [
        ("audio/pcm", None, Encoding.PCM16, 24_000),
        ("audio/pcm", 48_000, Encoding.PCM16, 48_000),
        ("audio/pcmu", None, Encoding.MULAW, 8_000),
        ("audio/pcma", None, Encoding.ALAW, 8_000),
        ("audio/pcma", 16_000, Encoding.ALAW, 16_000),
    ],
)
def test_pcm_has_24_khz_and_g711_has_8_khz_unless_the_client_sets_a_rate(
    kind: Any, rate: int | None, encoding: Encoding, samples_per_s: int
) -> None:
    """OpenAI's API has only these two rates."""
    found = RealtimeAudioFormat(type=kind, rate=rate).to_audio_format()
    assert found == AudioFormat(encoding=encoding, rate=samples_per_s)


@pytest.mark.parametrize(
    ("rate", "is_valid"), [(MIN_RATE - 1, False), (MIN_RATE, True), (MAX_RATE, True), (MAX_RATE + 1, False)]
)
async def test_rates_are_those_of_sound_cards(client: Client, rate: int, is_valid: bool) -> None:
    answer = await client.update(format={"type": "audio/pcm", "rate": rate})
    assert answer["type"] == ("session.updated" if is_valid else "error")


@pytest.mark.parametrize(
    ("silence_ms", "is_valid"), [(-1, False), (0, True), (MAX_END_OF_TURN_MS, True), (MAX_END_OF_TURN_MS + 1, False)]
)
async def test_the_silence_that_ends_a_turn_has_the_limits_of_the_session_api(
    client: Client, silence_ms: int, is_valid: bool
) -> None:
    answer = await client.update(turn_detection={**VAD, "silence_duration_ms": silence_ms})
    assert answer["type"] == ("session.updated" if is_valid else "error")
    assert client.stored == ([{"end_of_turn_ms": str(silence_ms)}] if is_valid else [])


async def test_a_session_is_described_with_its_defaults(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings without a value are null, as in OpenAI's API."""
    client = connect(sent, monkeypatch, "model=tiny", end_of_turn_ms=700)
    (created,) = client.answers()
    assert re.fullmatch("event_[0-9a-f]+", created.pop("event_id"))
    assert created == {
        "type": "session.created",
        "session": {
            "type": "transcription",
            "object": "realtime.transcription_session",
            "id": "sess_s7",
            "expires_at": 2_000_000_000,
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": 24_000},
                    "transcription": {"model": "tiny", "language": None, "prompt": None, "keywords": None},
                    "turn_detection": {"silence_duration_ms": 700, "type": "server_vad"},
                }
            },
        },
    }


async def test_settings_of_a_client_secret_apply_to_the_socket(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    """A null turn detection is a setting, and other null fields are not."""
    realtime = json.dumps({"format": {"type": "audio/pcmu"}, "transcription": None, "turn_detection": None})
    client = connect(sent, monkeypatch, language="de", realtime=realtime)
    (created,) = client.answers()
    settings = created["session"]["audio"]["input"]
    assert settings["format"]["type"] == "audio/pcmu"
    assert settings["transcription"]["language"] == "de"
    assert settings["turn_detection"] is None
    assert client.socket._format == AudioFormat(encoding=Encoding.MULAW, rate=8_000)


async def test_an_update_changes_only_the_settings_that_it_contains(client: Client) -> None:
    first = await client.update(transcription={"language": "de", "prompt": "A call"})
    assert client.stored == [{"language": "de", "prompt": "A call"}]
    second = await client.update(turn_detection={**VAD, "silence_duration_ms": 300})
    before, after = (each["session"]["audio"]["input"] for each in (first, second))
    assert after == before | {"turn_detection": {**VAD, "silence_duration_ms": 300}}
    third = await client.update(transcription={"keywords": []})
    assert client.stored[1:] == [{"end_of_turn_ms": "300"}, {"prompt": ""}]
    assert third["session"]["audio"]["input"]["format"] == {"type": "audio/pcm", "rate": 16_000}


async def test_settings_are_confirmed_when_engines_can_read_them(client: Client) -> None:
    """Regression: audio could arrive at an engine before the language that the client had set for it."""
    confirmed: list[dict[str, Any]] = []
    client.sessions.update.side_effect = lambda *_, **__: confirmed.extend(client.answers())
    answer = await client.update(transcription={"language": "de"})
    assert answer["type"] == "session.updated"
    assert client.stored == [{"language": "de"}]
    assert confirmed == []


async def test_settings_that_cannot_be_stored_are_not_confirmed(client: Client) -> None:
    client.sessions.update.side_effect = RedisError
    answer = await client.update(format={"type": "audio/pcmu"}, transcription={"language": "de"})
    assert (answer["type"], answer["error"]["code"]) == ("error", "store_unavailable")
    assert client.socket._format == AudioFormat(encoding=Encoding.PCM16, rate=16_000)
    client.sessions.update.side_effect = None
    described = (await client.update(transcription={"prompt": "A call"}))["session"]["audio"]["input"]
    assert described["transcription"]["language"] is None


async def test_an_update_without_settings_stores_nothing(client: Client) -> None:
    assert (await client.tell("session.update", session={}))[0]["type"] == "session.updated"
    assert (await client.update(transcription={"model": "any"}))["type"] == "session.updated"
    assert (await client.update(turn_detection=VAD))["type"] == "session.updated"
    assert client.stored == []


def test_only_transcription_is_supported() -> None:
    RealtimeSocket.validate_query(QueryParams(""))
    RealtimeSocket.validate_query(QueryParams("intent=transcription"))
    for intent in ("conversation", "a", "z"):
        with pytest.raises(Refusal, match="only transcription") as refused:
            RealtimeSocket.validate_query(QueryParams(f"intent={intent}"))
        assert refused.value.status_code == 400


# --- Invalid events -------------------------------------------------------------------------------------


async def test_an_error_names_the_event_and_its_first_invalid_field(client: Client) -> None:
    error = await client.error(
        "session.update",
        event_id="e1",
        session={"type": "other", "audio": {"input": {"turn_detection": {"silence_duration_ms": -1}}}},
    )
    assert error == {
        "type": "invalid_request_error",
        "code": "invalid_value",
        "message": "Input should be 'transcription'",
        "param": "session.type",
        "event_id": "e1",
    }
    assert (await client.error("input_audio_buffer.append"))["param"] == "audio"


@pytest.mark.parametrize(("characters", "is_valid"), [(512, True), (513, False)])
async def test_an_event_id_has_at_most_512_characters(client: Client, characters: int, is_valid: bool) -> None:
    """OpenAI's API reference states this maximum. A longer id is an error, which does not repeat the id."""
    event_id = "x" * characters
    (answer,) = await client.tell("input_audio_buffer.clear", event_id=event_id)
    assert answer["type"] == ("input_audio_buffer.cleared" if is_valid else "error")
    if not is_valid:
        assert answer["error"]["event_id"] is None


async def test_an_unsupported_language_is_an_error_with_the_id_of_its_event(client: Client) -> None:
    gateway: Any = client.socket._gateway
    gateway.fleet.languages = frozenset({"en"})
    session = {"audio": {"input": {"transcription": {"language": "de"}}}}
    error = await client.error("session.update", event_id="e2", session=session)
    assert (error["code"], error["param"], error["event_id"]) == (
        "unsupported_language", "session.audio.input.transcription.language", "e2",
    )  # fmt: skip
    assert client.stored == []


# --- Audio ----------------------------------------------------------------------------------------------


def test_an_event_may_contain_15_mib_of_audio() -> None:
    """This is OpenAI's maximum; the other fields may have as many bytes as any other message, 64 KiB."""
    assert MAX_EVENT_BYTES == 15 * 2**20 // 3 * 4 + 64 * 2**10


async def test_long_audio_is_decoded_in_pieces_of_a_message(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other callers are served in between; in base64, the pieces have whole groups of three bytes."""
    pieces: list[bytes] = []
    monkeypatch.setattr(client.socket, "_send_audio", pieces.append)
    audio = (bytes(range(251)) * 1100)[: 4 * 65_535 + 5]
    assert await client.append(audio) == []
    assert b"".join(pieces) == audio
    assert [len(piece) for piece in pieces] == [*[65_535] * 4, 5]


async def test_other_tasks_run_between_pieces_of_audio_but_not_before_a_short_one(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    room = 0

    async def sleep(duration_s: float) -> None:
        waits.append(duration_s)

    async def wait_until_not_full() -> None:
        nonlocal room
        room += 1

    monkeypatch.setattr("voice_gateway.realtime.asyncio.sleep", sleep)
    monkeypatch.setattr(client.socket._pacer, "wait_until_not_full", wait_until_not_full)
    for size, pauses in ((2, 0), (65_535, 0), (65_536, 2), (3 * 65_535, 4)):
        waits.clear()
        room = 0
        audio = base64.b64encode(bytes(size)).decode()
        assert await client.socket._append_audio(audio) is None
        assert (waits, room) == ([0] * pauses, pauses // 2)


@pytest.mark.parametrize("audio", ["no base64!", "é", "AAA"])
async def test_audio_that_is_no_base64_is_an_error_and_is_not_sent(client: Client, sent: Sent, audio: str) -> None:
    error = await client.error("input_audio_buffer.append", audio=audio)
    assert error["param"] == "audio"
    assert error["message"].startswith("no base64: ")
    assert kinds(await client.tell("input_audio_buffer.commit")) == ["committed", "completed"], "no audio"
    assert sent.payloads == []


# --- Commits --------------------------------------------------------------------------------------------


async def test_a_commit_without_audio_is_an_empty_transcript(client: Client, sent: Sent) -> None:
    await client.append(b"")
    committed, completed = await client.tell("input_audio_buffer.commit")
    item = committed["item_id"]
    assert re.fullmatch("item_[0-9a-f]+", item)
    assert {**committed, "event_id": ""} == {
        "type": "input_audio_buffer.committed", "event_id": "", "item_id": item, "previous_item_id": None,
    }  # fmt: skip
    assert {**completed, "event_id": ""} == {
        "type": f"{TRANSCRIPTION}.completed",
        "event_id": "",
        "item_id": item,
        "content_index": 0,
        "transcript": "",
        "usage": {"type": "duration", "seconds": 0.0},
    }
    assert sent.payloads == []


async def test_a_commit_with_audio_waits_for_its_transcript(client: Client, sent: Sent) -> None:
    await without_turns(client)
    await client.append(FRAME)
    assert kinds(await client.tell("input_audio_buffer.commit")) == ["committed"]
    await client.socket._pacer.wait_until_empty()
    assert sent.payloads == [FRAME, COMMIT]
    assert kinds(await client.tell("input_audio_buffer.commit")) == ["committed", "completed"], "no further audio"


async def test_with_turn_detection_a_commit_is_not_reported(client: Client, sent: Sent) -> None:
    """Its utterance is, as soon as it ends."""
    await client.append(FRAME)
    assert await client.tell("input_audio_buffer.commit") == []
    await client.socket._pacer.wait_until_empty()
    assert sent.payloads == [FRAME, COMMIT]


async def test_commits_that_follow_each_other_are_items_in_order(client: Client) -> None:
    """Transcripts belong to the first item that is not complete."""
    await without_turns(client)
    items: list[str] = []
    for _ in range(2):
        await client.append(FRAME)
        (committed,) = await client.tell("input_audio_buffer.commit")
        assert committed["previous_item_id"] == (items[-1] if items else None)
        items.append(committed["item_id"])
    for item, text in zip(items, ("one", "two"), strict=True):
        told = client.hear(EventKind.FINAL, 0, text, commit=True)
        assert [(each["item_id"], kind) for each, kind in zip(told, kinds(told), strict=True)] == [
            (item, "delta"), (item, "completed"),
        ]  # fmt: skip


async def test_an_item_that_has_begun_is_the_one_that_is_committed(client: Client) -> None:
    await without_turns(client)
    await client.append(FRAME)
    (delta,) = client.hear(EventKind.PARTIAL, 0, "one two", committed="one")
    (committed,) = await client.tell("input_audio_buffer.commit")
    told = client.hear(EventKind.FINAL, 0, "one two", commit=True)
    assert kinds(told) == ["delta", "completed"]
    assert {each["item_id"] for each in (delta, committed, *told)} == {delta["item_id"]}


# --- Transcripts ----------------------------------------------------------------------------------------


async def test_an_utterance_is_an_item_whose_deltas_only_append(client: Client) -> None:
    (started,) = client.hear(EventKind.SPEECH_STARTED, 40)
    assert started["audio_start_ms"] == 40
    told = client.hear(EventKind.PARTIAL, 40, "one two", committed="one")
    told += client.hear(EventKind.PARTIAL, 40, "one two", committed="one")
    told += client.hear(EventKind.PARTIAL, 40, "another", committed="another")
    stopped, committed = client.hear(EventKind.SPEECH_STOPPED, 40)
    assert (stopped["type"], stopped["audio_end_ms"]) == ("input_audio_buffer.speech_stopped", 540)
    assert committed["previous_item_id"] is None
    told += client.hear(EventKind.FINAL, 40, "one two.")
    assert [(kind, each.get("delta")) for each, kind in zip(told, kinds(told), strict=True)] == [
        ("delta", "one"), ("delta", " two."), ("completed", None),
    ]  # fmt: skip
    assert all(each["content_index"] == 0 for each in told)
    assert told[-1]["transcript"] == "one two."
    assert told[-1]["usage"] == {"type": "duration", "seconds": 0.5}
    assert {each["item_id"] for each in (started, stopped, committed, *told)} == {started["item_id"]}


async def test_a_long_utterance_is_complete_with_its_last_final(client: Client) -> None:
    client.hear(EventKind.SPEECH_STARTED, 0)
    assert kinds(client.hear(EventKind.FINAL, 0, "one", speech_final=False)) == ["delta"]
    assert not client.socket._is_checkpoint(final_at(0)), "its first part would be missing on the next socket"
    assert client.hear(EventKind.FINAL, 500, "", speech_final=False) == []
    told = client.hear(EventKind.FINAL, 1000, "two")
    assert kinds(told) == ["delta", "committed", "completed"]
    assert (told[0]["delta"], told[-1]["transcript"]) == (" two", "one two")
    assert told[-1]["usage"]["seconds"] == 1.5
    for kind in EventKind:
        transcript = final_at(1000).model_copy(update={"kind": kind})
        assert client.socket._is_checkpoint(transcript) is (kind is EventKind.FINAL)


def final_at(start_ms: int) -> Transcript:
    return Transcript(kind=EventKind.FINAL, utterance=start_ms // 20, start_ms=start_ms, end_ms=start_ms + 500)


async def test_a_commit_ends_an_utterance_that_continues(client: Client) -> None:
    client.hear(EventKind.SPEECH_STARTED, 0)
    told = client.hear(EventKind.FINAL, 0, "one", speech_final=False, commit=True)
    assert kinds(told) == ["delta", "committed", "completed"]


async def test_without_turn_detection_only_a_commit_ends_an_item(client: Client) -> None:
    await without_turns(client)
    assert client.hear(EventKind.SPEECH_STARTED, 0) == []
    assert client.hear(EventKind.SPEECH_STOPPED, 0) == []
    assert kinds(client.hear(EventKind.FINAL, 0, "one")) == ["delta"]
    assert client.hear(EventKind.SPEECH_STARTED, 1000) == []
    assert client.hear(EventKind.SPEECH_STOPPED, 1000) == []
    told = client.hear(EventKind.FINAL, 1000, "two", commit=True)
    assert kinds(told) == ["delta", "committed", "completed"]
    assert told[-1]["transcript"] == "one two"
    assert told[-1]["usage"]["seconds"] == 1.0


async def test_a_pause_without_an_item_is_not_reported(client: Client) -> None:
    """Its item was cleared."""
    assert client.hear(EventKind.SPEECH_STOPPED, 0) == []


async def test_gaps_and_the_end_are_no_events_of_openai(client: Client) -> None:
    client.hear(EventKind.SPEECH_STARTED, 0)
    assert client.hear(EventKind.GAP, 0) == client.hear(EventKind.END, 0) == []


# --- Cleared audio --------------------------------------------------------------------------------------


async def forwarded(client: Client, frames: int) -> None:
    """Append frames, and wait until they have left the gateway."""
    await client.append(FRAME * frames)
    await client.socket._pacer.wait_until_empty()


async def test_a_clear_discards_audio_that_still_waits(client: Client, sent: Sent) -> None:
    sent.has_host = False
    await client.append(FRAME * 3 + bytes(10))
    (cleared,) = await client.tell("input_audio_buffer.clear")
    assert cleared["type"] == "input_audio_buffer.cleared"
    assert kinds(await client.tell("input_audio_buffer.commit")) == ["committed", "completed"], "without audio"
    sent.has_host = True
    await forwarded(client, 2)
    assert sent.payloads == [FRAME] * 2, "neither the frames nor the part of a frame"
    assert kinds(client.hear(EventKind.SPEECH_STARTED, 0)) == ["speech_started"], "no transcript is suppressed"


@pytest.mark.parametrize(("frame", "is_sent"), [(1, True), (2, False), (4, False), (5, True), (9, True)])
async def test_transcripts_of_forwarded_audio_that_is_cleared_are_suppressed(
    client: Client, sent: Sent, frame: int, is_sent: bool
) -> None:
    """A range begins with its first frame, and ends before the frame after it."""
    await forwarded(client, 2)
    await client.tell("input_audio_buffer.commit")
    await forwarded(client, 3)
    await client.tell("input_audio_buffer.clear")
    await client.socket._pacer.wait_until_empty()
    assert sent.payloads == [FRAME, FRAME, COMMIT, FRAME, FRAME, FRAME, COMMIT]
    assert kinds(client.hear(EventKind.SPEECH_STARTED, frame * FRAME_MS)) == ["speech_started"] * is_sent


async def test_positions_of_a_later_socket_continue_those_of_its_session(
    sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connect_later(sent, monkeypatch)
    await forwarded(client, 1)
    await client.tell("input_audio_buffer.clear")
    assert client.hear(EventKind.SPEECH_STARTED, 1000) == []
    assert kinds(client.hear(EventKind.SPEECH_STARTED, 1000 + FRAME_MS)) == ["speech_started"]


async def connect_later(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> Client:
    """Connect to a session with a second of audio."""
    client = connect(sent, monkeypatch, start_ms=1000)
    client.answers()
    await client.update(format={"type": "audio/pcm", "rate": 16_000})
    return client


async def test_several_ranges_are_cleared(client: Client) -> None:
    for _ in range(2):
        await forwarded(client, 1)
        await client.tell("input_audio_buffer.clear")
        await forwarded(client, 1)
        await client.tell("input_audio_buffer.commit")
    suppressed = [not client.hear(EventKind.SPEECH_STARTED, frame * FRAME_MS) for frame in range(4)]
    assert suppressed == [True, False, True, False]


async def test_only_the_utterance_that_the_client_knows_to_be_complete_is_not_cleared(
    sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connect_later(sent, monkeypatch)
    await forwarded(client, 3)
    client.hear(EventKind.SPEECH_STARTED, 1020)
    client.hear(EventKind.SPEECH_STOPPED, 1020)
    await client.tell("input_audio_buffer.clear")
    for start_ms in (1000, 1040):
        assert client.hear(EventKind.FINAL, start_ms, "another") == []
    assert kinds(client.hear(EventKind.FINAL, 1020, "kept")) == ["delta", "completed"]


async def test_an_utterance_whose_end_was_not_reported_is_cleared(client: Client) -> None:
    await forwarded(client, 2)
    client.hear(EventKind.SPEECH_STARTED, 0)
    await client.tell("input_audio_buffer.clear")
    assert client.hear(EventKind.SPEECH_STOPPED, 0) == []
    assert client.hear(EventKind.FINAL, 0, "cleared") == []


async def test_a_second_clear_without_new_audio_marks_nothing(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await connect_later(sent, monkeypatch)
    await forwarded(client, 1)
    for _ in range(2):
        assert kinds(await client.tell("input_audio_buffer.clear")) == ["cleared"]
    await client.socket._pacer.wait_until_empty()
    assert sent.payloads == [FRAME, COMMIT]
