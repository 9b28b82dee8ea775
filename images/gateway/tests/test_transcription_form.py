"""OpenAI's transcription of files in this process: its form, and its formats with replaced transcripts."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import IO, Any

import pytest
from redis.asyncio import Redis

from images.gateway.tests.served_gateway import client_of, serving_gateway
from voice_blueprint.contract.session_api import MAX_PROMPT_CHARACTERS
from voice_gateway import transcriptions
from voice_gateway.decoder_process import ChannelNotFoundError
from voice_gateway.file_transcription import TranscriptionHints
from voice_gateway.gateway import Gateway
from voice_gateway.refusals import Refusal
from voice_gateway.subtitles import FileTranscript, Segment, SpokenWord

HELLO, BYE = Segment("Hello.", 0.5, 1.0), Segment("Bye.", 3.0, 3.5)
WORDS = [SpokenWord("Hello.", 0.5, 1.0), SpokenWord("Bye.", 3.0, 3.5)]


class FakeFile:
    """A file whose segments are transcribed one by one, and what was requested."""

    def __init__(self, *segments: Segment, channels: int = 1, error: Refusal | None = None) -> None:
        self.segments = segments
        self.channels = channels
        self.error = error
        self.requested: list[tuple[TranscriptionHints, bytes, int | None]] = []

    async def transcribe(
        self,
        _: Gateway,
        hints: TranscriptionHints,
        file: IO[bytes],
        transcript: FileTranscript,
        channel: int | None = None,
    ) -> AsyncIterator[list[Segment]]:
        self.requested.append((hints, file.read(), channel))
        file.seek(0)
        if channel is not None and channel >= self.channels:
            raise ChannelNotFoundError
        for number, segment in enumerate(self.segments):
            if (channel or 0) == number % self.channels:
                transcript.segments.append(segment)
                transcript.words += WORDS[number : number + 1]
                yield [segment]
        if self.error:
            raise self.error
        transcript.duration_s = 4.2


async def post(
    store: Redis, monkeypatch: pytest.MonkeyPatch, file: FakeFile, fields: Any = None, **request: Any
) -> Any:
    monkeypatch.setattr(transcriptions, "transcribe_file", file.transcribe)
    request.setdefault("files", {"file": ("sound.wav", b"audio")})
    async with serving_gateway(store) as gateway, client_of(gateway) as client:
        headers = request.pop("headers", {}) | {"Authorization": "Bearer any"}
        if "content" in request:
            request.pop("files")
        answer = await client.post("/v1/audio/transcriptions", data=fields, headers=headers, **request)
        assert gateway.file_slots._value == 2
        assert (gateway.connections, len(gateway.uploads)) == (0, 0)
        return answer


@pytest.mark.parametrize(
    ("fields", "hints"),
    [
        ({}, TranscriptionHints()),
        ({"language": "de", "prompt": "A call"}, TranscriptionHints("de", "A call")),
        (
            {"prompt": "A call", "keywords[]": ["Valkey", "Voxtral"]},
            TranscriptionHints(None, "A call. Valkey, Voxtral"),
        ),
        ({"keywords[]": ["Valkey"]}, TranscriptionHints(None, "Valkey")),
        ({"prompt": "a" * (MAX_PROMPT_CHARACTERS + 1)}, TranscriptionHints(None, "a" * MAX_PROMPT_CHARACTERS)),
    ],
    ids=["none", "language and prompt", "prompt and keywords", "keywords", "too long"],
)
async def test_hints_are_in_the_form(
    store: Redis, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], hints: TranscriptionHints
) -> None:
    file = FakeFile(HELLO)
    await post(store, monkeypatch, file, fields)
    assert file.requested == [(hints, b"audio", None)]


@pytest.mark.parametrize(
    ("response_format", "media_type", "text"),
    [
        ("text", "text/plain", "Hello.\nBye.\n"),
        ("srt", "text/plain", "1\n00:00:00,500 --> 00:00:01,000\nHello.\n\n2\n00:00:03,000 --> 00:00:03,500\nBye.\n\n"),
        ("vtt", "text/vtt",
         "WEBVTT\n\n00:00:00.500 --> 00:00:01.000\nHello.\n\n00:00:03.000 --> 00:00:03.500\nBye.\n\n"),
    ],
)  # fmt: skip
async def test_text_formats_are_sent_segment_by_segment(
    store: Redis, monkeypatch: pytest.MonkeyPatch, response_format: str, media_type: str, text: str
) -> None:
    answer = await post(store, monkeypatch, FakeFile(HELLO, BYE), {"response_format": response_format})
    assert answer.headers["Content-Type"] == f"{media_type}; charset=utf-8"
    assert (answer.headers["Cache-Control"], answer.text) == ("no-store", text)


@pytest.mark.parametrize("response_format", [None, "json"])
async def test_json_is_the_default_format(
    store: Redis, monkeypatch: pytest.MonkeyPatch, response_format: str | None
) -> None:
    fields = {"model": "any", **({"response_format": response_format} if response_format else {})}
    answer = await post(store, monkeypatch, FakeFile(HELLO, BYE), fields)
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json() == {"text": "Hello. Bye.", "usage": {"type": "duration", "seconds": 5}}


@pytest.mark.parametrize(
    ("granularities", "has_words"), [([], False), (["segment"], False), (["word"], True), (["segment", "word"], True)]
)
async def test_words_are_sent_on_request(
    store: Redis, monkeypatch: pytest.MonkeyPatch, granularities: list[str], has_words: bool
) -> None:
    fields: dict[str, Any] = {"response_format": "verbose_json", "timestamp_granularities[]": granularities}
    document = (await post(store, monkeypatch, FakeFile(HELLO, BYE), fields)).json()
    assert [segment["text"] for segment in document["segments"]] == ["Hello.", "Bye."]
    assert ("words" in document) == has_words


async def test_an_empty_file_has_a_header_and_a_document(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await post(store, monkeypatch, FakeFile(), {"response_format": "vtt"})).text == "WEBVTT\n\n"
    assert (await post(store, monkeypatch, FakeFile())).json()["text"] == ""


async def test_speakers_of_a_stereo_file_are_its_channels(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last channel is transcribed first, so that a file without it is refused before the response starts."""
    file = FakeFile(HELLO, BYE, channels=2)
    answer = await post(store, monkeypatch, file, {"response_format": "diarized_json"})
    assert [channel for _, _, channel in file.requested] == [1, 0]
    assert answer.text.startswith("\n\n{")
    document = answer.json()
    assert [(each["speaker"], each["text"]) for each in document["segments"]] == [("A", "Hello."), ("B", "Bye.")]
    assert document["usage"] == {"type": "duration", "seconds": 5}


async def test_a_mono_file_has_no_speakers(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = await post(store, monkeypatch, FakeFile(HELLO), {"response_format": "diarized_json"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "response_format")


def events(text: str) -> list[dict[str, Any]]:
    *found, last = text.split("\n\n")
    assert last == ""
    return [json.loads(each.removeprefix("data: ")) for each in found]


async def test_events_append_to_the_text(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = await post(store, monkeypatch, FakeFile(HELLO, BYE), {"stream": "true"})
    assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert events(answer.text) == [
        {"type": "transcript.text.delta", "delta": "Hello."},
        {"type": "transcript.text.delta", "delta": " Bye."},
        {"type": "transcript.text.done", "text": "Hello. Bye."},
    ]


FAILED = Refusal(500, "not transcribed", "an engine failed")


async def test_an_error_after_the_first_event_is_an_event(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = await post(store, monkeypatch, FakeFile(HELLO, error=FAILED), {"stream": "true"})
    delta, error = events(answer.text)
    assert (answer.status_code, delta["delta"]) == (200, "Hello.")
    expected = {"message": "an engine failed", "type": "server_error", "param": None, "code": "not_transcribed"}
    assert error == {"error": expected}


@pytest.mark.parametrize("fields", [{"stream": "true"}, {}])
async def test_an_error_before_the_response_has_its_status(
    store: Redis, monkeypatch: pytest.MonkeyPatch, fields: dict[str, str]
) -> None:
    answer = await post(store, monkeypatch, FakeFile(error=FAILED), fields)
    assert (answer.status_code, answer.json()["error"]["message"]) == (500, "an engine failed")


@pytest.mark.parametrize(
    ("fields", "files", "param"),
    [
        ({"response_format": "docx"}, {"file": b"audio"}, "response_format"),
        ({"language": "no language"}, {"file": b"audio"}, "language"),
        ({"stream": "maybe"}, {"file": b"audio"}, "stream"),
        ({}, {"other": b"audio"}, "file"),
        ({"file": "no upload"}, {"other": b"audio"}, "file"),
    ],
)
async def test_an_invalid_field_is_named(
    store: Redis, monkeypatch: pytest.MonkeyPatch, fields: dict[str, str], files: dict[str, bytes], param: str
) -> None:
    named = {name: ("sound.wav", content) for name, content in files.items()}
    answer = await post(store, monkeypatch, FakeFile(HELLO), fields, files=named)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize(("files", "fields", "status"), [(1, 32, 200), (1, 33, 400), (2, 0, 400)])
async def test_a_form_has_a_file_and_up_to_32_fields(
    store: Redis, monkeypatch: pytest.MonkeyPatch, files: int, fields: int, status: int
) -> None:
    named = dict.fromkeys(("file", "other")[:files], ("sound.wav", b"audio"))
    ignored = {f"field-{number}": "text" for number in range(fields)}
    assert (await post(store, monkeypatch, FakeFile(HELLO), ignored, files=named)).status_code == status


async def test_a_slow_file_is_refused(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    async def content() -> AsyncIterator[bytes]:
        yield b"--b\r\n"
        await asyncio.Event().wait()

    monkeypatch.setattr(transcriptions, "UPLOAD_TIMEOUT_S", 0.01)
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = await post(store, monkeypatch, FakeFile(HELLO), content=content(), headers=headers)
    assert (answer.status_code, answer.headers["Connection"]) == (408, "close")
    assert answer.json()["error"]["code"] == "file_too_slow"


async def test_the_only_model_is_described(store: Redis) -> None:
    described = {"id": "whisper", "object": "model", "created": 0, "owned_by": "voice-serve"}
    async with serving_gateway(store) as gateway, client_of(gateway) as client:
        assert (await client.get("/v1/models")).json() == {"object": "list", "data": [described]}
        assert (await client.get("/v1/models/whisper")).json() == described
        for other in ("whisper-1", "a", "z"):
            answer = await client.get(f"/v1/models/{other}")
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    async with serving_gateway(store, authorizer="iam") as gateway, client_of(gateway) as client:
        assert (await client.get("/v1/models")).status_code == 401
