"""The language model hears the caller itself: audio goes into the chat, and no speech to text is opened."""

import io
import json
import wave
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from images.agent.tests.conftest import KEY, RATE, SAMPLE_BYTES, Place, agent_over, silence, speech, until
from images.agent.tests.engines import Engines
from images.agent.tests.test_conversation import ENDED_S, LONG, SPOKEN_S, said, speak
from images.agent.tests.test_server import refused
from images.conftest import StoreServer
from images.gateway.tests.running import GatewayProcess, free_rtp_port
from voice_agent import chat, tokens

TURNS = 3


@pytest.fixture
async def place(engines: Engines, store: Redis) -> AsyncIterator[Place]:
    engines.hears = True
    async with agent_over(engines, store, listening="audio") as place:
        yield place


def tagged(question: str, answer: str) -> str:
    return f"<transcript>{question}</transcript> <response>{answer}</response>"


def pcm(heard: bytes) -> bytes:
    with wave.open(io.BytesIO(heard)) as file:
        assert (file.getframerate(), file.getsampwidth(), file.getnchannels()) == (RATE, SAMPLE_BYTES, 1)
        return bytes(file.readframes(file.getnframes()))


async def test_three_questions_are_heard_by_the_model_and_remembered_as_words(
    place: Place, engines: Engines, store: Redis
) -> None:
    words = [(f"Question {turn}?", f"Answer {turn}.") for turn in range(TURNS)]
    engines.answers = [tagged(*each) for each in words]
    async with place.call() as caller:
        conversation = caller.messages[0]["id"]
        await caller.send(silence(0.2))  # nobody speaks while it still picks up
        for turn in range(TURNS):
            await speak(caller)
            await caller.until(lambda each, turn=turn: each.heard_s >= (turn + 0.9) * engines.spoken_s)  # type: ignore[misc]
            while len(await said(store, conversation)) < 2 * (turn + 1):
                await caller.send(silence(0.02))
        assert place.agent.metrics.text().count(b"voice_agent_turn_seconds_count 3.0") == 1
    told = [(role, text) for question, answer in words for role, text in (("user", question), ("assistant", answer))]
    assert await said(store, conversation) == told
    # From its first sound to its last, and nothing of the questions before it.
    for heard in map(pcm, engines.heard):
        assert speech(SPOKEN_S).tobytes() in heard
        assert len(heard) < (SPOKEN_S + ENDED_S) * RATE * SAMPLE_BYTES
    assert len(engines.heard) == TURNS
    # Its engine takes few pieces of audio a request: earlier questions are words.
    assert [(each["role"], each["content"]) for each in engines.asked[-1]["messages"][1:-1]] == told[:4]
    assert [each["input"] for each in engines.spoken] == [answer for _, answer in words]
    assert all(asked["max_completion_tokens"] > place.agent.settings.answer_tokens for asked in engines.asked)
    assert engines.updates == [], "a session of speech to text was opened"
    assert engines.engine_keys["chat"] == "Bearer of-chat"
    assert len(set(engines.sessions)) == 1
    assert engines.sessions[0]


async def test_who_interrupts_is_heard_anew_and_what_was_audible_is_remembered(
    place: Place, engines: Engines, store: Redis
) -> None:
    engines.answers, engines.spoken_s = [tagged("First?", LONG), tagged("Second?", "Two.")], 60.0
    async with place.call() as caller:
        conversation = caller.messages[0]["id"]
        await speak(caller)
        await caller.until(lambda each: each.heard_s > 0)
        await caller.send(speech(0.3))
        await caller.until(lambda each: each.interruptions == 2)
        engines.spoken_s = 1.0
        await caller.send(silence(ENDED_S))
        while len(found := await said(store, conversation)) < 4:
            await caller.send(silence(0.02))
    assert [role for role, _ in found] == ["user", "assistant"] * 2
    assert found[0][1] == "First?"
    assert LONG.startswith(found[1][1])
    assert not found[1][1].endswith("end.")
    assert found[2:] == [("user", "Second?"), ("assistant", "Two.")]


async def test_who_comes_back_is_answered_from_the_words_that_are_remembered(
    place: Place, engines: Engines, store: Redis
) -> None:
    conversation = "c" * 32
    for role, content in (("user", "Hello."), ("assistant", "Hello!"), ("user", "Who are you?")):
        await store.rpush(f"conversation:{conversation}", json.dumps({"role": role, "content": content}))
    engines.answers = ["A test.", tagged("And now?", "Still a test.")]
    async with place.call(f"/v1/conversations/{conversation}", tokens.make(KEY, conversation, 60)) as caller:
        while len(await said(store, conversation)) < 4:
            await caller.send(silence(0.02))
        await speak(caller)
        while len(await said(store, conversation)) < 6:
            await caller.send(silence(0.02))
    assert [each["content"] for each in engines.asked[0]["messages"][1:]] == ["Hello.", "Hello!", "Who are you?"]
    assert len(engines.heard) == 1


async def test_a_model_that_says_no_transcript_answers_all_the_same(
    place: Place, engines: Engines, store: Redis
) -> None:
    engines.answers = ["I have heard you."]
    async with place.call() as caller:
        conversation = caller.messages[0]["id"]
        await speak(caller)
        while not (found := await said(store, conversation)):
            await caller.send(silence(0.02))
    assert found == [("assistant", "I have heard you.")]


async def test_of_a_question_without_end_its_end_is_heard(
    place: Place, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat, "LONGEST_QUESTION_BYTES", RATE * SAMPLE_BYTES)
    engines.answers = [tagged("Question?", "Answer.")]
    async with place.call() as caller:
        await speak(caller)
        await caller.until(lambda each: each.heard_s > 0)
    assert RATE * SAMPLE_BYTES * 0.9 < len(pcm(engines.heard[0])) <= RATE * SAMPLE_BYTES


async def test_an_agent_that_stops_cuts_no_turn(place: Place, engines: Engines, store: Redis) -> None:
    engines.answers, engines.spoken_s = [tagged("What is this?", "It is a test.")], 2.0
    async with place.call() as caller:
        conversation = caller.messages[0]["id"]
        await caller.send(speech(SPOKEN_S))
        place.agent.leaving.set()
        await caller.send(silence(ENDED_S))
        assert await caller.closed() == 1012
        assert caller.heard_s == pytest.approx(engines.spoken_s, abs=0.1)
    assert await said(store, conversation) == [("user", "What is this?"), ("assistant", "It is a test.")]


async def test_the_gateway_still_says_who_may_speak(place: Place, engines: Engines) -> None:
    async with place.call():
        assert engines.present == 1
    await until(lambda: engines.present == 0)
    assert engines.keys == [""]
    engines.refuses = 429
    status, told = await refused(place)
    assert (status, json.loads(told)) == (429, {"error": "busy", "detail": "full"})
    await until(lambda: place.agent.held == 0)


async def test_a_gateway_that_stops_is_followed_by_another(place: Place, engines: Engines) -> None:
    async with place.call() as caller:
        await engines.sockets[-1].close(1012)
        await until(lambda: len(engines.keys) == 2 and engines.present == 1)
        engines.answers = [tagged("Question?", "Answer.")]
        await speak(caller)
        await caller.until(lambda each: each.heard_s > 0)
    await until(lambda: engines.present == 0)


async def test_whom_the_gateway_lets_in_no_more_is_told_to_come_back(place: Place, engines: Engines) -> None:
    async with place.call() as caller:
        engines.refuses = 429
        await engines.sockets[-1].close(1012)
        assert await caller.closed() == 1013


async def test_a_session_that_another_has_taken_is_not_taken_back(place: Place, engines: Engines) -> None:
    async with place.call() as caller:
        await engines.sockets[-1].close(1008)
        assert await caller.closed() == 1013
    assert len(engines.keys) == 1


async def test_a_conversation_is_one_of_its_callers_sessions(
    engines: Engines, store: Redis, store_server: StoreServer
) -> None:
    """At a real gateway, which has no host that hears: none is needed."""
    gateway = GatewayProcess(store_server, free_rtp_port(), CALLER_SESSIONS=1).start()
    try:
        await gateway.ready()
        async with agent_over(engines, store, listening="audio", gateway_url=gateway.url, conversations=2) as place:
            async with place.call():
                status, told = await refused(place)
                assert (status, json.loads(told)["error"]) == (429, "too many sessions")
            async with place.call():
                pass
    finally:
        gateway.kill()
