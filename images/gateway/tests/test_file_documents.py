"""Documents of a file with two speakers, one per channel, and Deepgram's transcription of files.

A simulated host answers through the store.
"""

import hashlib
import json
import re
from datetime import datetime
from typing import Any

import httpx2
import numpy as np
import pytest
from redis.asyncio import Redis

from images.gateway.tests.running import GatewayProcess, holds
from images.gateway.tests.test_transcription_events import host
from images.gateway.tests.test_transcriptions import TRANSCRIPTIONS, noise, wav
from images.gateway.tests.test_usage import told, used
from voice_gateway.audio import SAMPLE_RATE_HZ
from voice_runtime.file_pieces import PieceTranscript
from voice_runtime.transcripts import TimedWord

LISTEN = "/v1/listen"
ID = re.compile("[0-9a-f]{32}")
SECONDS = 5.25
SHUTDOWN = PieceTranscript(
    text="Twenty three, write to a@b.com. Thanks.",
    language="en",
    words=[
        TimedWord(text="Twenty", start_ms=200, end_ms=400, confidence=0.9),
        TimedWord(text="three,", start_ms=450, end_ms=600, confidence=0.5),
        TimedWord(text="write", start_ms=700, end_ms=800, confidence=0.7),
        TimedWord(text="to", start_ms=800, end_ms=900, confidence=0.7),
        TimedWord(text="a@b.com.", start_ms=900, end_ms=1200, confidence=0.6),
        TimedWord(text="Thanks.", start_ms=1200, end_ms=1400, confidence=0.8),
    ],
)
RIGHT = PieceTranscript(text="I listen.")


def speech(begin_s: float, end_s: float) -> np.ndarray:
    samples = np.zeros(round(SECONDS * SAMPLE_RATE_HZ), np.int16)
    samples[round(begin_s * SAMPLE_RATE_HZ) : round(end_s * SAMPLE_RATE_HZ)] = noise(end_s - begin_s)
    return samples


STEREO = wav(np.stack([speech(1, 2.5), speech(3, 4)], axis=1))[1]
MONO = wav(speech(1, 2.5))[1]


async def listened(gateway: GatewayProcess, file: bytes, **options: str) -> httpx2.Response:
    async with gateway.client() as client:
        return await client.post(LISTEN, content=file, params=options, headers={"Content-Type": "audio/wav"})


async def diarized(gateway: GatewayProcess, file: bytes) -> httpx2.Response:
    data = {"model": "any", "response_format": "diarized_json"}
    async with gateway.client() as client:
        return await client.post(TRANSCRIPTIONS, data=data, files={"file": ("sound.wav", file)})


async def test_speakers_are_the_channels_of_a_file_in_the_order_of_their_speech(
    gateway: GatewayProcess, store: Redis
) -> None:
    async with host(store, RIGHT, PieceTranscript(text="I speak.")):  # the last channel is transcribed first
        answer = await diarized(gateway, STEREO)
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.text.startswith("\n"), "white space shows that work continues"
    segment = {"type": "transcript.text.segment"}
    assert answer.json() == {
        "task": "transcribe",
        "duration": SECONDS,
        "text": "I speak. I listen.",
        "segments": [
            {**segment, "id": "seg_001", "speaker": "A", "text": "I speak.", "start": 0.8, "end": 2.7},
            {**segment, "id": "seg_002", "speaker": "B", "text": "I listen.", "start": 2.8, "end": 4.2},
        ],
        "usage": {"type": "duration", "seconds": 6},
    }


async def test_subtitles_begin_with_their_heading_and_arrive_by_piece(gateway: GatewayProcess, store: Redis) -> None:
    cue = "00:00:00.800 --> 00:00:02.700\nI speak.\n\n"
    for form, text in (("vtt", f"WEBVTT\n\n{cue}"), ("srt", f"1\n{cue.replace('.', ',', 2)}"), ("text", "I speak.\n")):
        async with host(store, PieceTranscript(text="I speak.")), gateway.client() as client:
            data, files = {"model": "any", "response_format": form}, {"file": ("sound.wav", MONO)}
            answer = await client.post(TRANSCRIPTIONS, data=data, files=files)
        assert answer.text == text


async def test_a_file_with_one_channel_has_no_speakers(gateway: GatewayProcess) -> None:
    answer = await diarized(gateway, MONO)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "response_format")
    assert "this file has one" in answer.json()["error"]["message"]


async def test_a_file_is_used_up_as_far_as_it_was_transcribed(gateway: GatewayProcess, store: Redis) -> None:
    before = len(told(gateway))
    async with host(store, RIGHT, PieceTranscript(text="I speak.")):
        await diarized(gateway, STEREO)
    await diarized(gateway, b"no audio")
    await holds("it is told", lambda: len(told(gateway)) > before)
    usage = {"audio_s": 2 * SECONDS, "speech_s": pytest.approx(1.9 + 1.4), "characters": 17}
    assert await used(store, "127.0.0.1") == usage
    (line,) = told(gateway)[before:]
    assert line | {"caller": "127.0.0.1", "session": "", **usage} == line


def channel(answer: dict[str, Any], number: int = 0) -> dict[str, Any]:
    (best,) = answer["results"]["channels"][number]["alternatives"]
    return dict(best)


async def test_a_file_of_two_speakers_has_a_transcript_for_each(gateway: GatewayProcess, store: Redis) -> None:
    async with host(store, SHUTDOWN, RIGHT):
        answer = (await listened(gateway, STEREO, multichannel="true", utterances="true")).json()
    metadata = answer["metadata"]
    assert ID.fullmatch(metadata.pop("request_id"))
    assert datetime.fromisoformat(metadata.pop("created")).tzinfo
    assert metadata == {
        "transaction_key": "deprecated",
        "sha256": hashlib.sha256(STEREO).hexdigest(),
        "duration": SECONDS,
        "channels": 2,
        "models": ["whisper"],
        "model_info": {"whisper": {"name": "whisper", "version": "", "arch": "whisper"}},
    }
    left, right = answer["results"]["channels"]
    assert (left["detected_language"], "detected_language" in right) == ("en", False)
    best = channel(answer)
    assert best["transcript"] == "Twenty three, write to a@b.com. Thanks."
    assert best["confidence"] == pytest.approx(0.7)
    assert best["words"][1] == {
        "word": "three", "punctuated_word": "three,", "start": 1.25, "end": 1.4, "confidence": 0.5
    }  # fmt: skip
    assert channel(answer, 1) == {"transcript": "I listen.", "confidence": 0.0, "words": []}
    utterances = answer["results"]["utterances"]
    assert all(ID.fullmatch(each.pop("id")) for each in utterances)
    assert utterances == [
        {"start": start, "end": end, "channel": speaker, "speaker": speaker, "transcript": text}
        for start, end, speaker, text in (
            (1.0, 2.0, 0, "Twenty three, write to a@b.com."),
            (2.0, 2.2, 0, "Thanks."),
            (2.8, 4.2, 1, "I listen."),
        )
    ]


async def test_channels_are_mixed_unless_they_are_requested(gateway: GatewayProcess, store: Redis) -> None:
    for file, options in ((STEREO, {}), (MONO, {"multichannel": "true"})):
        async with host(store, SHUTDOWN):
            answer = (await listened(gateway, file, **options)).json()
        assert answer["metadata"]["channels"] == len(answer["results"]["channels"]) == 1
        assert answer["results"].keys() == {"channels"}, "utterances are not requested"


async def test_a_file_is_redacted_and_written_as_its_client_requests(gateway: GatewayProcess, store: Redis) -> None:
    async with host(store, SHUTDOWN):
        options = {"redact": "email", "numerals": "true", "punctuate": "false", "utterances": "true"}
        answer = (await listened(gateway, MONO, **options)).json()
    best = channel(answer)
    assert best["transcript"] == "23 write to [email] thanks"
    assert [(each["word"], each["punctuated_word"]) for each in best["words"]] == [
        (word, word) for word in ("23", "write", "to", "[email]", "thanks")
    ]
    assert (best["words"][0]["start"], best["words"][0]["end"]) == (1.0, 1.4)
    assert best["confidence"] == pytest.approx(np.mean([0.5, 0.7, 0.7, 0.6, 0.8]))
    assert [each["transcript"] for each in answer["results"]["utterances"]] == ["23 write to [email]", "thanks"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"redact": "ssn"}, "redact: ssn is not taken out here"),
        ({"punctuate": "maybe"}, "punctuate: "),
        ({"language": "no language"}, "language: "),
    ],
)
async def test_an_unsupported_option_is_refused_in_deepgrams_form(
    gateway: GatewayProcess, options: dict[str, str], why: str
) -> None:
    answer = await listened(gateway, MONO, **options)
    refusal = answer.json()
    assert (answer.status_code, refusal["err_code"], refusal["request_id"]) == (400, "BAD_REQUEST", "")
    assert refusal["err_msg"].startswith(why)


async def test_an_address_in_place_of_a_file_is_refused(gateway: GatewayProcess) -> None:
    async with gateway.client() as client:
        answer = await client.post(LISTEN, json={"url": "http://localhost/file.wav"})
    assert (answer.status_code, answer.json()["err_msg"].partition(":")[0]) == (400, "url")
    assert json.loads(answer.text)["err_code"] == "BAD_REQUEST"
