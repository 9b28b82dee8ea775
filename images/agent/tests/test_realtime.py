"""Events of OpenAI's realtime API: positions in the audio, and the begin and end of answers."""

import base64
import json
from types import SimpleNamespace
from typing import Any

import pytest
from pipecat.frames.frames import InputAudioRawFrame, InterruptionFrame, OutputAudioRawFrame

from voice_agent.realtime import RealtimeSerializer

SECOND = bytes(2 * 24_000)
ANSWER = OutputAudioRawFrame(b"\1\2" * 240, 24_000, 1)


class Client:
    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    async def send_text(self, text: str) -> None:
        self.events.append(json.loads(text))


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
async def serializer(client: Client) -> RealtimeSerializer:
    found = RealtimeSerializer(client)  # type: ignore[arg-type]  # what it asks of one
    await found.setup(SimpleNamespace(audio_in_sample_rate=16_000))  # type: ignore[arg-type]
    return found


async def hear(serializer: RealtimeSerializer, audio: bytes) -> InputAudioRawFrame | None:
    event = {"type": "input_audio_buffer.append", "audio": base64.b64encode(audio).decode()}
    frame = await serializer.deserialize(json.dumps(event))
    assert frame is None or isinstance(frame, InputAudioRawFrame)
    return frame


async def test_a_clients_audio_is_resampled_for_the_pipeline(serializer: RealtimeSerializer) -> None:
    frame = await hear(serializer, SECOND)
    assert frame
    assert (frame.sample_rate, frame.num_channels) == (16_000, 1)
    assert len(frame.audio) / 2 == pytest.approx(16_000, rel=0.1), "the resampler keeps some"


async def test_a_session_begins_with_its_formats_and_its_token(serializer: RealtimeSerializer) -> None:
    session = serializer.build_session_created_event("c", "t")["session"]
    assert [session["audio"][way]["format"]["rate"] for way in ("input", "output")] == [24_000, 24_000]
    assert session["conversation"] == {"id": "c", "token": "t"}


async def test_positions_are_those_of_the_clients_audio(serializer: RealtimeSerializer) -> None:
    for _ in range(3):
        await hear(serializer, SECOND[: 2 * 12_001])
    started = json.loads(await serializer.serialize(InterruptionFrame()) or "{}")
    assert (started["type"], started["audio_start_ms"]) == ("input_audio_buffer.speech_started", 1500)
    await hear(serializer, SECOND)
    stopped, committed, completed = serializer.build_question_events("What is this?")
    assert (stopped["audio_end_ms"], stopped["item_id"]) == (2500, started["item_id"])
    assert (committed["item_id"], committed["previous_item_id"]) == (started["item_id"], None)
    assert completed["usage"] == {"type": "duration", "seconds": 2.5}
    assert (completed["transcript"], completed["content_index"]) == ("What is this?", 0)


@pytest.mark.parametrize(("status", "reason"), [("completed", None), ("cancelled", "turn_detected")])
async def test_an_answer_begins_with_its_audio_and_ends_once(
    serializer: RealtimeSerializer, client: Client, status: Any, reason: str | None
) -> None:
    assert (
        list(serializer.build_answer_events("No.")) == list(serializer.build_response_done_events("completed")) == []
    ), "there is no answer"
    first, second = [json.loads(str(await serializer.serialize(ANSWER))) for _ in range(2)]
    created, added = client.events
    response, item = created["response"]["id"], added["item"]["id"]
    assert (created["type"], created["response"]["status"]) == ("response.created", "in_progress")
    assert (added["type"], added["response_id"], added["output_index"]) == ("response.output_item.added", response, 0)
    place = {"response_id": response, "item_id": item, "output_index": 0, "content_index": 0}
    for delta in (first, second):
        assert base64.b64decode(delta["delta"]) == ANSWER.audio
        assert delta | place | {"type": "response.output_audio.delta"} == delta
    (transcript,) = serializer.build_answer_events("Yes.")
    assert transcript | place | {"transcript": "Yes."} == transcript
    silent, done = serializer.build_response_done_events(status)
    assert silent | place | {"type": "response.output_audio.done"} == silent
    assert done["response"] == {
        "id": response, "object": "realtime.response", "status": status, "output": [],
        "status_details": {"type": status, "reason": reason},
    }  # fmt: skip
    assert list(serializer.build_response_done_events("completed")) == []
    await serializer.serialize(ANSWER)
    assert client.events[2]["response"]["id"] != response, "the next answer is another one"


async def test_an_interruption_cancels_the_answer(serializer: RealtimeSerializer, client: Client) -> None:
    await serializer.serialize(ANSWER)
    await serializer.serialize(InterruptionFrame())
    assert [event["type"] for event in client.events[2:]] == ["response.output_audio.done", "response.done"]
    assert client.events[3]["response"]["status"] == "cancelled"
    await serializer.serialize(InterruptionFrame())
    assert len(client.events) == 4
