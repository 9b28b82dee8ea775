"""The language model receives the caller's audio, and speech to text is not used."""

import io
import itertools
import json
import math
import socket
import wave
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from redis.asyncio import Redis

from images.agent.tests.conftest import KEY, RATE, SAMPLE_BYTES, Place, running_agent, silence, speech
from images.agent.tests.engines import Engines
from images.agent.tests.test_conversation import ENDED_S, LONG, SPOKEN_S, said, speak
from images.agent.tests.test_server import refused
from images.conftest import BUSY_TIMEOUT_S, StoreServer, until
from images.gateway.tests.running import GatewayProcess
from voice_agent import chat, speech_to_text, tokens
from voice_agent.refusals import RefusedError
from voice_blueprint.contract.media import MAX_AUDIO_INPUTS
from voice_sandbox.loopback import find_free_port

TURNS = 3


@pytest.fixture
async def place(engines: Engines, store: Redis) -> AsyncIterator[Place]:
    engines.hears = True
    async with running_agent(engines, store, listening="audio") as place:
        yield place


def tagged(question: str, answer: str) -> str:
    return f"<transcript>{question}</transcript> <response>{answer}</response>"


def pcm(heard: bytes) -> bytes:
    with wave.open(io.BytesIO(heard)) as file:
        assert (file.getframerate(), file.getsampwidth(), file.getnchannels()) == (RATE, SAMPLE_BYTES, 1)
        return bytes(file.readframes(file.getnframes()))


def audio_in(messages: list[dict[str, Any]]) -> int:
    """Return the number of audio inputs in a request."""
    contents = [each["content"] for each in messages if isinstance(each["content"], list)]
    return sum(part["type"] == "input_audio" for content in contents for part in content)


async def test_the_model_receives_three_questions_as_audio(place: Place, engines: Engines, store: Redis) -> None:
    words = [("Question 0?", "Question 0?"), *((f"Question {turn}?", f"Answer {turn}.") for turn in range(1, TURNS))]
    engines.answers = [tagged(*each) for each in words]
    async with place.call() as caller:
        conversation = caller.messages[0]["id"]
        await caller.send(silence(0.2))  # silence, while it is still processing
        for turn in range(TURNS):
            await speak(caller)
            await caller.until(lambda each, turn=turn: each.heard_s >= (turn + 0.9) * engines.spoken_s)  # type: ignore[misc]
            while len(await said(store, conversation)) < 2 * (turn + 1):
                await caller.send(silence(0.02))
        assert place.agent.metrics.to_text().count(b"voice_agent_turn_seconds_count 3.0") == 1
    told = [(role, text) for question, answer in words for role, text in (("user", question), ("assistant", answer))]
    assert await said(store, conversation) == told
    # From its first sound to its last, without the preceding questions.
    for heard in map(pcm, engines.heard):
        assert speech(SPOKEN_S).tobytes() in heard
        assert len(heard) < (SPOKEN_S + ENDED_S) * RATE * SAMPLE_BYTES
        assert heard.index(speech(SPOKEN_S).tobytes()) <= 0.5 * RATE * SAMPLE_BYTES
    assert len(engines.heard) == TURNS
    # Earlier questions remain audio, and each request starts like the previous one, so that its engine finds them in
    # its cache.
    requests = [asked["messages"] for asked in engines.asked]
    for before, after in itertools.pairwise(requests):
        assert after[: len(before)] == before
        assert after[len(before)]["role"] == "assistant"
    assert [audio_in(each) for each in requests] == [1, 2, 3]
    assert [each["input"] for each in engines.spoken] == [answer for _, answer in words]
    for asked, heard in zip(engines.asked, engines.heard, strict=True):
        seconds = math.ceil(len(heard) / RATE / SAMPLE_BYTES)
        assert asked["max_completion_tokens"] == place.agent.settings.answer_tokens + 5 * seconds
        assert asked["temperature"] == 0.2, "as recommended for Voxtral"
    assert engines.updates == [], "a session of speech to text was opened"
    assert engines.engine_keys["chat"] == "Bearer of-chat"
    assert len(set(engines.sessions)) == 1
    assert engines.sessions[0]


async def test_audio_in_a_request_is_limited_to_the_engines_maximum(
    place: Place, engines: Engines, store: Redis
) -> None:
    turns = 2 * MAX_AUDIO_INPUTS - 1
    engines.answers = [tagged(f"Question {turn}?", f"Answer {turn}.") for turn in range(turns)]
    engines.spoken_s = 0.2
    async with place.call() as caller:
        conversation = caller.messages[0]["id"]
        for turn in range(turns):
            await speak(caller)
            while len(await said(store, conversation)) < 2 * (turn + 1):
                await caller.send(silence(0.02))
    requests = [asked["messages"] for asked in engines.asked]
    # One more with each question; above the limit, the older ones become text at once.
    assert [audio_in(each) for each in requests] == [1, 2, 3, 4, 5, 3, 4, 5, 3]
    same = [after[: len(before)] == before for before, after in itertools.pairwise(requests)]
    assert same == [True, True, True, True, False, True, True, False]
    # The prompt is part of the first message, since Voxtral supports no system message with audio.
    prompt = {"type": "text", "text": place.agent.settings.prompt}
    assert requests[5][0]["content"] == [prompt, {"type": "text", "text": "Question 0?"}]
    assert [each["content"] for each in requests[5][2:6:2]] == ["Question 1?", "Question 2?"]


async def test_an_interruption_starts_a_new_utterance_and_keeps_the_audible_answer(
    place: Place, engines: Engines, store: Redis
) -> None:
    engines.answers, engines.spoken_s = [tagged("First?", LONG), tagged("Second?", "Two.")], 60.0
    async with place.call() as caller:
        conversation = caller.messages[0]["id"]
        await speak(caller)
        await caller.until(lambda each: each.heard_s > 0)
        await caller.send(speech(0.3))
        await caller.until(lambda each: each.interruptions >= 2)
        engines.spoken_s = 1.0
        await caller.send(silence(ENDED_S))
        while len(found := await said(store, conversation)) < 4:
            await caller.send(silence(0.02))
    assert [role for role, _ in found] == ["user", "assistant"] * 2
    assert found[0][1] == "First?"
    assert LONG.startswith(found[1][1])
    assert not found[1][1].endswith("end.")
    assert found[2:] == [("user", "Second?"), ("assistant", "Two.")]


async def test_a_returning_caller_is_answered_from_stored_text(place: Place, engines: Engines, store: Redis) -> None:
    conversation = "c" * 32
    for role, content in (("user", "Hello."), ("assistant", "Hello!"), ("user", "Who are you?")):
        await store.rpush(f"conversation:{conversation}", json.dumps({"role": role, "content": content}))
    engines.answers = ["A test.", tagged("And now?", "Still a test.")]
    async with place.call(f"/v1/conversations/{conversation}", tokens.create_token(KEY, conversation, 60)) as caller:
        while len(await said(store, conversation)) < 4:
            await caller.send(silence(0.02))
        await speak(caller)
        while len(await said(store, conversation)) < 6:
            await caller.send(silence(0.02))
    assert [each["content"] for each in engines.asked[0]["messages"][1:]] == ["Hello.", "Hello!", "Who are you?"]
    assert len(engines.heard) == 1


async def test_a_model_without_transcripts_still_answers(place: Place, engines: Engines, store: Redis) -> None:
    engines.answers = ["I have heard you.", "This as well."]
    async with place.call() as caller:
        conversation = caller.messages[0]["id"]
        for turn in range(2):
            await speak(caller)
            while len(found := await said(store, conversation)) < turn + 1:
                await caller.send(silence(0.02))
    assert found == [("assistant", "I have heard you."), ("assistant", "This as well.")]
    assert [each["role"] for each in engines.asked[1]["messages"]] == ["user", "assistant", "user"]


async def test_the_end_of_an_endless_question_is_sent(
    place: Place, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = round(1.5 * RATE) * SAMPLE_BYTES
    monkeypatch.setattr(chat, "MAX_QUESTION_BYTES", limit + SAMPLE_BYTES)  # no multiple of a message
    engines.answers = [tagged("Question?", "Answer.")]
    async with place.call() as caller:
        await speak(caller)
        await caller.until(lambda each: each.heard_s > 0)
    assert limit * 0.9 < len(pcm(engines.heard[0])) <= limit
    assert pcm(engines.heard[0]) in np.concatenate([speech(SPOKEN_S), silence(ENDED_S)]).tobytes()


async def test_a_stopping_agent_completes_its_turns(
    place: Place, engines: Engines, store: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voice_agent.conversation.LAST_TURN_TIMEOUT_S", 2 * BUSY_TIMEOUT_S)
    engines.answers, engines.spoken_s = [tagged("What is this?", "It is a test.")], 2.0
    async with place.call() as caller:
        conversation = caller.messages[0]["id"]
        await caller.send(speech(SPOKEN_S))
        place.agent.shutting_down.set()
        await caller.send(silence(ENDED_S))
        assert await caller.closed() == 1012
        assert caller.heard_s == pytest.approx(engines.spoken_s, abs=0.1)
    assert await said(store, conversation) == [("user", "What is this?"), ("assistant", "It is a test.")]


async def test_the_gateway_still_authorizes_callers(place: Place, engines: Engines) -> None:
    async with place.call():
        assert engines.present == 1
    await until(lambda: engines.present == 0)
    assert engines.keys == [""]
    engines.refuses = 429
    status, told = await refused(place)
    assert (status, json.loads(told)) == (429, {"error": "busy", "detail": "full"})
    await until(lambda: place.agent.conversation_count == 0)


async def test_the_agent_reconnects_when_a_gateway_stops(place: Place, engines: Engines) -> None:
    async with place.call() as caller:
        await engines.sockets[-1].close(1012)
        await until(lambda: len(engines.keys) == 2 and engines.present == 1)
        engines.answers = [tagged("Question?", "Answer.")]
        await speak(caller)
        await caller.until(lambda each: each.heard_s > 0)
    await until(lambda: engines.present == 0)


@dataclass
class Session:
    """A connection to a gateway that has been killed."""

    close_code: int = 1006

    async def wait_closed(self) -> None:
        pass

    async def close(self) -> None:
        pass


async def test_a_lost_session_is_replaced_after_growing_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    is_away = iter([True, True, False, True, True, True])

    class Gateway:
        async def open_session(self) -> Session:
            if next(is_away):
                raise RefusedError(503, "gateway away", "")
            return Session()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(speech_to_text, "asyncio", SimpleNamespace(sleep=sleep))
    await speech_to_text.PresenceConnection(Gateway(), Session()).maintain_session()  # type: ignore[arg-type]
    assert pauses == [0.5, 1, 2, 0.5, 1, 2]


async def test_callers_refused_by_the_gateway_must_reconnect(place: Place, engines: Engines) -> None:
    async with place.call() as caller:
        engines.refuses = 429
        await engines.sockets[-1].close(1012)
        assert await caller.closed() == 1013


async def test_a_session_with_a_new_owner_is_not_reclaimed(place: Place, engines: Engines) -> None:
    async with place.call() as caller:
        await engines.sockets[-1].close(1008)
        assert await caller.closed() == 1013
    assert len(engines.keys) == 1


async def test_a_conversation_counts_as_a_session_of_its_caller(
    engines: Engines, store: Redis, store_server: StoreServer
) -> None:
    """With an actual gateway without a transcription host, since none is needed."""
    gateway = GatewayProcess(store_server, find_free_port(socket.SOCK_DGRAM), CALLER_SESSIONS=1).start()
    try:
        await gateway.ready()
        async with running_agent(engines, store, listening="audio", gateway_url=gateway.url, conversations=2) as place:
            async with place.call():
                status, told = await refused(place)
                assert (status, json.loads(told)["error"]) == (429, "too many sessions")
            async with place.call():
                pass
    finally:
        gateway.kill()
