"""Deepgram's transcription of files in this process, with replaced transcripts."""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import IO, Any

import pytest
from redis.asyncio import Redis

from images.gateway.tests.served_gateway import client_of, serving_gateway
from voice_gateway import listen_file
from voice_gateway.audio import MAX_CHANNELS
from voice_gateway.decoder_process import ChannelNotFoundError
from voice_gateway.file_transcription import TranscriptionHints
from voice_gateway.gateway import Gateway
from voice_gateway.refusals import Refusal
from voice_gateway.subtitles import FileTranscript, Segment
from voice_runtime.transcripts import TimedWord

MIB = 1 << 20
ID = re.compile("[0-9a-f]{32}")
FIRST = FileTranscript(
    segments=[Segment("Twenty three.", 0.5, 1.0), Segment("Bye.", 3.0, 3.5)],
    timed_words=[
        TimedWord(text="Twenty", start_ms=500, end_ms=750, confidence=0.5),
        TimedWord(text="three.", start_ms=750, end_ms=1000, confidence=1.0),
        TimedWord(text="Bye.", start_ms=3000, end_ms=3500, confidence=0.75),
    ],
    language="en",
    duration_s=4.00049,
)
SECOND = FileTranscript(segments=[Segment("It's ann@b.com.", 1.5, 2.0)], duration_s=4.00123)


class FakeFile:
    """Transcripts by channel in place of those of an engine, and what was requested."""

    def __init__(self, *channels: FileTranscript, error: Exception | None = None) -> None:
        self.channels = channels
        self.error = error
        self.requested: list[tuple[TranscriptionHints, int | None]] = []
        self.content = b""
        self.is_on_disk = False

    async def transcribe(
        self,
        _: Gateway,
        hints: TranscriptionHints,
        file: IO[bytes],
        transcript: FileTranscript,
        channel: int | None,
    ) -> AsyncIterator[list[Segment]]:
        self.requested.append((hints, channel))
        self.is_on_disk = bool(vars(file)["_rolled"])
        file.seek(0)
        self.content = file.read()
        if self.error:
            raise self.error
        if (channel or 0) >= len(self.channels):
            raise ChannelNotFoundError
        vars(transcript).update(vars(self.channels[channel or 0]))
        yield []
        yield []


async def post(
    store: Redis, monkeypatch: pytest.MonkeyPatch, file: FakeFile, query: str = "", content: Any = b"audio"
) -> Any:
    monkeypatch.setattr(listen_file, "transcribe_file", file.transcribe)
    async with serving_gateway(store) as gateway, client_of(gateway) as client:
        headers = {"Content-Type": "audio/wav", "Authorization": "Token any"}
        answer = await client.post(f"/v1/listen{query}", content=content, headers=headers)
        assert gateway.file_slots._value == 2
        assert (gateway.connections, len(gateway.uploads)) == (0, 0)
        return answer


async def test_a_transcript_has_deepgrams_fields(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = await post(store, monkeypatch, FakeFile(FIRST))
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
    assert answer.text.startswith("\n\n{"), "white space keeps the connection alive"
    document = answer.json()
    created = document["metadata"].pop("created")
    assert abs((datetime.now(UTC) - datetime.fromisoformat(created)).total_seconds()) < 60
    assert re.fullmatch(r".*T\d\d:\d\d:\d\d\.\d{3}\+00:00", created)
    assert ID.fullmatch(document["metadata"].pop("request_id"))
    assert document == {
        "metadata": {
            "transaction_key": "deprecated",
            "sha256": hashlib.sha256(b"audio").hexdigest(),
            "duration": 4.0,
            "channels": 1,
            "models": ["whisper"],
            "model_info": {"whisper": {"name": "whisper", "version": "", "arch": "whisper"}},
        },
        "results": {
            "channels": [
                {
                    "alternatives": [
                        {
                            "transcript": "Twenty three. Bye.",
                            "confidence": 0.75,
                            "words": [
                                {"word": "twenty", "punctuated_word": "Twenty", "start": 0.5, "end": 0.75,
                                 "confidence": 0.5},
                                {"word": "three", "punctuated_word": "three.", "start": 0.75, "end": 1.0,
                                 "confidence": 1.0},
                                {"word": "bye", "punctuated_word": "Bye.", "start": 3.0, "end": 3.5,
                                 "confidence": 0.75},
                            ],
                        }
                    ],
                    "detected_language": "en",
                }
            ]
        },
    }  # fmt: skip


async def test_channels_and_utterances_are_separate_on_request(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    file = FakeFile(FIRST, SECOND)
    document = (await post(store, monkeypatch, file, "?multichannel=true&utterances=true")).json()
    assert [channel for _, channel in file.requested] == [0, 1]
    assert (document["metadata"]["channels"], document["metadata"]["duration"]) == (MAX_CHANNELS, 4.001)
    first, second = document["results"]["channels"]
    assert (first["detected_language"], "detected_language" in second) == ("en", False)
    assert second["alternatives"] == [{"transcript": "It's ann@b.com.", "confidence": 0.0, "words": []}]
    utterances = document["results"]["utterances"]
    assert len({each["id"] for each in utterances}) == 3
    assert all(ID.fullmatch(each.pop("id")) for each in utterances)
    assert utterances == [
        {"start": start, "end": end, "channel": channel, "speaker": channel, "transcript": text}
        for start, end, channel, text in (
            (0.5, 1.0, 0, "Twenty three."), (1.5, 2.0, 1, "It's ann@b.com."), (3.0, 3.5, 0, "Bye.")
        )
    ]  # fmt: skip


async def test_a_missing_channel_is_left_out(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    document = (await post(store, monkeypatch, FakeFile(FIRST), "?multichannel=true")).json()
    assert document["metadata"]["channels"] == len(document["results"]["channels"]) == 1


async def test_channels_are_mixed_by_default(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    file = FakeFile(FIRST, SECOND)
    await post(store, monkeypatch, file, "?language=de&keyterm=Valkey")
    assert file.requested == [(TranscriptionHints("de", "Valkey"), None)]


async def test_text_is_redacted_and_normalized_on_request(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    query = "?multichannel=true&redact=email&numerals=true&punctuate=false&utterances=true"
    results = (await post(store, monkeypatch, FakeFile(FIRST, SECOND), query)).json()["results"]
    first, second = (each["alternatives"][0] for each in results["channels"])
    assert (first["transcript"], second["transcript"]) == ("23 bye", "it's [email]")
    assert [(word["word"], word["confidence"]) for word in first["words"]] == [("23", 0.5), ("bye", 0.75)]
    assert first["confidence"] == 0.625
    assert [each["transcript"] for each in results["utterances"]] == ["23", "it's [email]", "bye"]


@pytest.mark.parametrize(("size", "is_on_disk"), [(MIB, False), (MIB + 1, True)])
async def test_a_file_above_a_mib_is_on_disk(
    store: Redis, monkeypatch: pytest.MonkeyPatch, size: int, is_on_disk: bool
) -> None:
    file, content = FakeFile(FIRST), bytes(size)
    document = (await post(store, monkeypatch, file, content=content)).json()
    assert (file.content == content, file.is_on_disk) == (True, is_on_disk)
    assert document["metadata"]["sha256"] == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("?redact=ssn", "redact: ssn is not taken out here"),
        ("?punctuate=maybe", "punctuate: "),
        ("?multichannel=maybe", "multichannel: "),
        ("?language=no%20language", "language: "),
    ],
)
async def test_an_invalid_parameter_is_named(
    store: Redis, monkeypatch: pytest.MonkeyPatch, query: str, why: str
) -> None:
    answer = await post(store, monkeypatch, FakeFile(FIRST), query)
    refusal = answer.json()
    assert (answer.status_code, refusal["err_code"], refusal["request_id"]) == (400, "BAD_REQUEST", "")
    assert refusal["err_msg"].startswith(why)


async def test_an_address_is_not_fetched(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen_file, "transcribe_file", FakeFile(FIRST).transcribe)
    async with serving_gateway(store) as gateway, client_of(gateway) as client:
        answer = await client.post("/v1/listen", json={"url": "http://localhost/file.wav"})
    assert (answer.status_code, answer.json()["err_code"]) == (400, "BAD_REQUEST")
    assert answer.json()["err_msg"].startswith("url: ")


async def test_an_error_before_the_response_has_its_status(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    file = FakeFile(FIRST, error=Refusal(429, "no capacity", "try again", {"Retry-After": "5"}))
    answer = await post(store, monkeypatch, file)
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "5")
    assert answer.json() == {"err_code": "NO_CAPACITY", "err_msg": "try again", "request_id": ""}


async def test_a_slow_file_is_refused(store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    async def content() -> AsyncIterator[bytes]:
        yield b"audio"
        await asyncio.Event().wait()

    monkeypatch.setattr(listen_file, "UPLOAD_TIMEOUT_S", 0.01)
    answer = await post(store, monkeypatch, FakeFile(FIRST), content=content())
    assert (answer.status_code, answer.headers["Connection"]) == (408, "close")
    assert json.loads(answer.text)["err_code"] == "FILE_TOO_SLOW"
