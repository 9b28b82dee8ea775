"""Answers prepared before the end of a turn, and sounds that do not interrupt them."""

import asyncio
import json
import time
from functools import partial
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pipecat.frames.frames import (
    Frame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    TTSStartedFrame,
    TTSTextFrame,
)
from pipecat.processors.aggregators.llm_response_universal import LLMAssistantAggregator
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.transports.websocket.fastapi import FastAPIWebsocketOutputTransport, FastAPIWebsocketParams
from redis.asyncio import Redis

from images.agent.tests.conftest import KEY, RATE, Caller, Place, running_agent, silence, speech
from images.agent.tests.engines import Engines
from images.agent.tests.test_conversation import ENDED_S, LONG, said, speak
from images.conftest import BUSY_TIMEOUT_S, until
from voice_agent import tokens
from voice_agent.interruptions import DECISION_TIMEOUT_S, _split_words, is_assent, is_echo
from voice_agent.models import TurnAnalyzer, TurnModels

PAUSE_S = 0.15
"""Longer than a pause that starts work, and shorter than one that ends a turn."""
WORD_S = 0.3
PLAYED_S = 0.4
UNHEARD_S = 2.0
"""Silence that ends a turn of noise."""
PARTS_OF_AN_ANSWER = (LLMFullResponseStartFrame, TTSStartedFrame, TTSTextFrame, LLMFullResponseEndFrame)
PASSES = 100
"""More passes of the event loop than the frames of an answer need through the transport, on a machine of any speed."""
Samples = np.ndarray[Any, np.dtype[np.int16]]


@pytest.fixture
def sounds_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each pause, and the end of speech, sound like the end of a turn, regardless of the sample."""
    monkeypatch.setattr(TurnAnalyzer, "_predict_endpoint", lambda *_: {"prediction": 1, "probability": 1.0})


@pytest.mark.usefixtures("sounds_over")
async def test_an_answer_is_prepared_in_a_pause_and_spoken_once_the_turn_is_over(
    place: Place, engines: Engines, store: Redis
) -> None:
    engines.finals, engines.answers = [(900, "What is this?")], ["It is a test."]
    async with place.call() as caller:
        conversation = caller.messages[0]["id"]
        await until(lambda: len(engines.updates) == 1)
        await caller.send(speech(1.0))
        await caller.send(silence(PAUSE_S))
        await until(lambda: len(engines.asked) == 1)
        assert caller.heard_s == 0
        assert await said(store, conversation) == []
        await caller.send(silence(ENDED_S))
        await caller.until(lambda each: each.heard_s >= engines.spoken_s)
        while len(found := await said(store, conversation)) < 2:
            await caller.send(silence(0.02))
    assert found == [("user", "What is this?"), ("assistant", "It is a test.")]
    [asked] = engines.asked
    assert asked["messages"][-1]["content"] == "What is this?"


@pytest.mark.usefixtures("sounds_over")
async def test_a_premature_answer_is_neither_spoken_nor_remembered(
    place: Place, engines: Engines, store: Redis
) -> None:
    engines.finals = [(900, "What is this"), (2100, "that I hear?")]
    engines.answers = ["Which one do you mean?", "It is a test."]
    async with place.call() as caller:
        conversation = caller.messages[0]["id"]
        await until(lambda: len(engines.updates) == 1)
        await caller.send(speech(1.0))
        await caller.send(silence(PAUSE_S))
        await until(lambda: len(engines.asked) == 1)
        await caller.send(speech(1.0))
        await caller.send(silence(ENDED_S))
        while len(found := await said(store, conversation)) < 2:
            await caller.send(silence(0.02))
    assert found == [("user", "What is this that I hear?"), ("assistant", "It is a test.")]
    assert [each["input"] for each in engines.spoken] == ["It is a test."]
    assert engines.asked[-1]["messages"][-1]["content"] == "What is this that I hear?"


async def test_an_unfinished_sounding_pause_starts_no_answer(
    place: Place, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TurnAnalyzer, "_predict_endpoint", lambda *_: {"prediction": 0, "probability": 0.0})
    engines.finals, engines.answers = [(900, "What I want to know")], ["Yes?"]
    async with place.call() as caller:
        await until(lambda: len(engines.updates) == 1)
        await caller.send(speech(1.0))
        await caller.send(silence(PAUSE_S))
        await caller.send(silence(0.3))
        await until(lambda: engines.told == 1)  # at the end of speech
        await caller.send(silence(0.3))
        assert engines.asked == []
        await caller.send(silence(ENDED_S))
        await until(lambda: len(engines.asked) == 1)


async def into_the_answer(caller: Caller, sound: Samples) -> None:
    """Ask a question, and make a sound during the answer."""
    await speak(caller)
    await caller.until(lambda each: each.heard_s > 0)
    assert caller.interruptions == 1, "that was the turn's own beginning"
    await caller.send(silence(0.2))
    await caller.send(sound)


def cough() -> Samples:
    """Two bursts of noise with a sharp onset, most of it between 0.5 and 3 kHz, 60 and 200 ms long."""
    noise = np.random.default_rng(0).normal(size=round(0.5 * RATE))
    spectrum, frequencies = np.fft.rfft(noise), np.fft.rfftfreq(noise.size, 1 / RATE)
    shaped = np.fft.irfft(spectrum * np.exp(-(((frequencies - 1500) / 900) ** 2)), noise.size)
    t = np.arange(noise.size) / RATE
    envelope = np.exp(-t / 0.02) + np.where(t > 0.15, np.exp(-(t - 0.15) / 0.07), 0)
    burst = shaped * envelope
    return np.asarray(20_000 * burst / np.abs(burst).max(), np.int16)


@pytest.mark.parametrize(
    ("sound", "transcript"),
    [
        pytest.param(cough(), "", id="a cough"),
        pytest.param(speech(WORD_S), "", id="a sound without words"),
        pytest.param(speech(WORD_S), "Mm-hmm.", id="mhm"),
        pytest.param(speech(2 * WORD_S), "Yeah, right.", id="assent"),
        pytest.param(speech(WORD_S), "on and on goes", id="echo"),
    ],
)
async def test_a_backchannel_does_not_interrupt_the_answer(
    place: Place, engines: Engines, sound: Samples, transcript: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voice_agent.interruptions.DECISION_TIMEOUT_S", 2 * BUSY_TIMEOUT_S)  # the transcript decides
    engines.finals, engines.answers, engines.spoken_s = [(1900, "What is this?")], [LONG], 60.0
    async with place.call() as caller:
        await into_the_answer(caller, sound)
        engines.finals.append((0, transcript))
        await caller.send(silence(ENDED_S))
        heard_s = caller.heard_s
        await caller.until(lambda each: each.heard_s > heard_s + PLAYED_S)
        assert caller.interruptions == 1
    assert len(engines.asked) == 1


async def test_an_answer_continues_without_a_transcript(
    place: Place, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The silence after a sound does not count as speech, and the gateway has a limited time."""
    limits: list[asyncio.Future[None]] = []

    async def sleep(limit_s: float) -> None:
        assert limit_s == 3.0, "callers wait no longer for the gateway"
        limits.append(asyncio.get_running_loop().create_future())
        await limits[-1]

    monkeypatch.setattr("voice_agent.interruptions.asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": sleep}))
    engines.finals, engines.answers, engines.spoken_s = [(1900, "What is this?")], [LONG], 60.0
    async with place.call() as caller:
        await into_the_answer(caller, speech(WORD_S))
        engines.finals.append((0, "Mhm."))
        await caller.send(silence(ENDED_S))
        await until(lambda: [each.cancelled() for each in limits] == [True])
        engines.may_tell.clear()
        await caller.send(speech(WORD_S))
        await caller.send(silence(2.0))
        assert caller.interruptions == 1
        [_, waiting] = limits
        heard_s = caller.heard_s
        waiting.set_result(None)
        await caller.until(lambda each: each.heard_s > heard_s + PLAYED_S)
        assert caller.interruptions == 1
        engines.may_tell.set()


async def test_an_answer_after_a_reconnect_is_paused_and_continued(
    place: Place, engines: Engines, store: Redis
) -> None:
    conversation = "c" * 32
    await store.rpush(f"conversation:{conversation}", json.dumps({"role": "user", "content": "Who are you?"}))
    engines.answers, engines.spoken_s = [LONG], 60.0
    async with place.call(f"/v1/conversations/{conversation}", tokens.create_token(KEY, conversation, 60)) as caller:
        await caller.until(lambda each: each.heard_s > 0)
        await until(lambda: len(engines.updates) == 1)
        engines.may_tell.clear()
        await caller.send(np.concatenate([silence(1.0), speech(WORD_S)]))
        heard_s = caller.heard_s
        await asyncio.sleep(PLAYED_S)
        assert caller.heard_s < heard_s + PLAYED_S / 2, "it goes on while the caller speaks"
        engines.finals.append((0, "Mhm."))
        engines.may_tell.set()
        await caller.send(silence(0.5))
        await caller.until(lambda each: each.heard_s > heard_s + PLAYED_S)
        assert caller.interruptions == 0
    assert len(engines.asked) == 1


@pytest.mark.usefixtures("sounds_over")
async def test_a_prepared_answer_is_discarded_if_the_transcript_changes(
    place: Place, engines: Engines, store: Redis
) -> None:
    engines.finals, engines.answers = [(900, "What is this")], ["Which one do you mean?", "It is a test."]
    async with place.call() as caller:
        conversation = caller.messages[0]["id"]
        await until(lambda: len(engines.updates) == 1)
        await caller.send(speech(1.0))
        await caller.send(silence(PAUSE_S))
        await until(lambda: len(engines.asked) == 1)
        engines.finals.append((0, "that I hear?"))
        await caller.send(silence(ENDED_S))
        while len(found := await said(store, conversation)) < 2:
            await caller.send(silence(0.02))
    assert found == [("user", "What is this that I hear?"), ("assistant", "It is a test.")]
    assert [each["input"] for each in engines.spoken] == ["It is a test."]


async def test_a_pause_that_sounds_final_too_late_is_not_transcribed_again(
    place: Place, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = asyncio.Event()

    async def sounds_over(_: TurnAnalyzer) -> bool:
        await slow.wait()
        return True

    monkeypatch.setattr(TurnAnalyzer, "sounds_complete", sounds_over)
    engines.finals, engines.answers = [(900, "What is this?")], ["It is a test."]
    async with place.call() as caller:
        await caller.send(speech(1.0))
        await caller.send(silence(ENDED_S))
        await until(lambda: len(engines.commits) == 1)
        slow.set()
        await caller.until(lambda each: each.heard_s >= engines.spoken_s)
    assert len(engines.commits) == 1


async def test_an_echo_of_the_agent_pauses_an_answer_at_most_once(place: Place, engines: Engines) -> None:
    engines.finals, engines.answers, engines.spoken_s = [(1900, "What is this?")], [LONG], 60.0
    async with place.call() as caller:
        await into_the_answer(caller, speech(WORD_S))
        engines.finals.append((0, "goes on and on"))
        await caller.send(silence(ENDED_S))
        heard_s = caller.heard_s
        await caller.until(lambda each: each.heard_s > heard_s)
        engines.may_tell.clear()
        await caller.send(speech(2.0))  # without a transcript
        heard_s = caller.heard_s
        await caller.until(lambda each: each.heard_s > heard_s + PLAYED_S)
        assert caller.interruptions == 1
        engines.finals.append((0, "No, that is enough."))
        engines.may_tell.set()
        await caller.send(silence(ENDED_S))
        await caller.until(lambda each: each.interruptions >= 2)


async def test_a_sound_pauses_an_answer_and_a_word_interrupts_it(place: Place, engines: Engines) -> None:
    engines.finals, engines.answers, engines.spoken_s = [(1900, "What is this?")], [LONG, "I stop."], 60.0
    async with place.call() as caller:
        await into_the_answer(caller, speech(WORD_S))
        heard_s, since = caller.heard_s, time.monotonic()
        while time.monotonic() - since < PLAYED_S:
            await asyncio.sleep(0.02)
        assert caller.heard_s < heard_s + PLAYED_S / 2, "it goes on while the caller speaks"
        engines.finals.append((0, "Stop."))
        await caller.send(silence(0.5))
        await caller.until(lambda each: each.interruptions >= 2)
        await until(lambda: len(engines.asked) == 2)
        assert engines.asked[-1]["messages"][-1]["content"] == "Stop."


async def test_an_interrupted_answer_precedes_the_question_that_interrupts_it(
    place: Place, engines: Engines, store: Redis
) -> None:
    engines.finals, engines.answers, engines.spoken_s = [(1900, "What is this?")], [LONG, "I stop."], 60.0
    async with place.call() as caller:
        conversation = caller.messages[0]["id"]
        await into_the_answer(caller, speech(WORD_S))
        engines.finals.append((0, "Stop."))
        await caller.send(silence(0.5))
        while len(found := await said(store, conversation)) < 3:
            await caller.send(silence(0.02))
    del found[3:]  # the next answer may be stored already
    assert [role for role, _ in found] == ["user", "assistant", "user"]
    assert [each["content"] for each in engines.asked[1]["messages"][1:]] == [text for _, text in found]


async def test_long_speech_interrupts_before_it_is_transcribed(place: Place, engines: Engines) -> None:
    engines.finals, engines.answers, engines.spoken_s = [(1900, "What is this?")], [LONG], 60.0
    async with place.call() as caller:
        await speak(caller)
        await caller.until(lambda each: each.heard_s > 0)
        engines.may_tell.clear()
        await caller.send(silence(0.2))
        await caller.send(speech(1.5))
        await caller.until(lambda each: each.interruptions >= 2)


async def test_noise_before_an_answer_does_not_leave_the_question_unanswered(engines: Engines, store: Redis) -> None:
    engines.finals, engines.answers = [(1900, "What is this?")], ["It is a test."]
    engines.may_answer.clear()
    async with running_agent(engines, store, unheard_within_s=UNHEARD_S) as place, place.call() as caller:
        await speak(caller)
        await until(lambda: len(engines.asked) == 1)
        await caller.send(speech(1.5))
        await caller.until(lambda each: each.interruptions >= 2)
        engines.may_answer.set()
        await caller.send(silence(ENDED_S))
        await caller.until(lambda each: each.heard_s >= 0.9 * engines.spoken_s)
    assert [asked["messages"][-1]["content"] for asked in engines.asked] == ["What is this?"] * 2


async def test_repeated_noise_repeats_a_question_once(engines: Engines, store: Redis) -> None:
    engines.finals, engines.answers = [(1900, "What is this?")], ["It is a test."]
    engines.may_answer.clear()
    async with running_agent(engines, store, unheard_within_s=UNHEARD_S) as place, place.call() as caller:
        await speak(caller)
        for noise in (1, 2):
            await until(lambda noise=noise: len(engines.asked) == noise)  # type: ignore[misc]
            before = caller.interruptions  # a busy machine may divide the question into several interruptions
            await caller.send(speech(1.5))
            await caller.until(lambda each, before=before: each.interruptions > before)  # type: ignore[misc]
            await caller.send(silence(ENDED_S))
        place.agent.shutting_down.set()
        assert await caller.closed() == 1012
    assert len(engines.asked) == 2


async def test_an_interrupted_answer_is_not_heard_again(place: Place, engines: Engines) -> None:
    engines.finals, engines.answers, engines.spoken_s = [(1900, "What is this?")], [LONG, "I stop."], 60.0
    async with place.call() as caller:
        await into_the_answer(caller, speech(1.5))
        await caller.until(lambda each: each.interruptions >= 2)
        heard_s, engines.spoken_s = caller.heard_s, 0.0
        engines.finals.append((0, "Stop."))
        await caller.send(silence(ENDED_S))
        await until(lambda: len(engines.spoken) == 2)
        await caller.send(silence(PLAYED_S))
        assert caller.heard_s == heard_s


async def test_an_answer_is_remembered_if_it_begins_before_the_interrupted_audio_was_written(
    place: Place, engines: Engines, store: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transcript follows the speech, so that the interruption, the question and the answer begin together."""
    parameters = partial(FastAPIWebsocketParams, audio_out_write_timeout_secs=2 * BUSY_TIMEOUT_S)
    monkeypatch.setattr("voice_agent.conversation.FastAPIWebsocketParams", parameters)
    may_write, is_writing, is_answer_on_its_way = asyncio.Event(), asyncio.Event(), asyncio.Event()
    may_write.set()
    remembered: list[str] = []
    play, queue_frame = FastAPIWebsocketOutputTransport._write_audio_sleep, FrameProcessor.queue_frame

    async def wait(output: FastAPIWebsocketOutputTransport) -> None:
        if not may_write.is_set():
            is_writing.set()
        await may_write.wait()
        await play(output)  # type: ignore[no-untyped-call]

    async def record(processor: FrameProcessor, frame: Frame, *arguments: Any) -> None:
        await queue_frame(processor, frame, *arguments)
        if len(engines.spoken) < 2 or not isinstance(frame, PARTS_OF_AN_ANSWER):
            return
        if isinstance(processor, LLMAssistantAggregator):
            remembered.append(type(frame).__name__)
        elif isinstance(processor, FastAPIWebsocketOutputTransport) and isinstance(frame, LLMFullResponseEndFrame):
            is_answer_on_its_way.set()

    monkeypatch.setattr(FastAPIWebsocketOutputTransport, "_write_audio_sleep", wait)
    monkeypatch.setattr(FrameProcessor, "queue_frame", record)
    engines.finals, engines.answers, engines.spoken_s = [(1900, "What is this?")], [LONG, "Good."], 60.0
    async with place.call() as caller:
        conversation = caller.messages[0]["id"]
        await speak(caller)
        await caller.until(lambda each: each.heard_s > 0)
        may_write.clear()
        await is_writing.wait()
        engines.spoken_s = 1.0
        await caller.send(np.concatenate([silence(0.2), speech(WORD_S)]))
        engines.finals.append((0, "Stop."))
        await caller.send(silence(0.5))
        await is_answer_on_its_way.wait()
        for _ in range(PASSES):
            await asyncio.sleep(0)
        may_write.set()
        async with asyncio.timeout(BUSY_TIMEOUT_S):  # otherwise it would be remembered with the next question
            while ("assistant", "Good.") not in await said(store, conversation):
                await caller.send(silence(0.02))
    assert remembered == [part.__name__ for part in PARTS_OF_AN_ANSWER]


async def test_a_caller_who_interrupts_can_speak_for_longer_than_a_write_may_take(
    place: Place, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = partial(FastAPIWebsocketParams, audio_out_write_timeout_secs=DECISION_TIMEOUT_S)
    monkeypatch.setattr("voice_agent.conversation.FastAPIWebsocketParams", parameters)
    engines.finals, engines.answers, engines.spoken_s = [(1900, "What is this?")], [LONG, "I stop."], 60.0
    async with place.call() as caller:
        await into_the_answer(caller, speech(1.5))
        await caller.until(lambda each: each.interruptions >= 2)
        heard_s, since = caller.heard_s, time.monotonic()
        for piece in cycle(np.split(speech(2.0), 20)):
            await caller.send(piece)
            await asyncio.sleep(0.05)
            if time.monotonic() - since > 1.2 * DECISION_TIMEOUT_S:
                break
        engines.finals.append((0, "Stop."))
        await caller.send(silence(ENDED_S))
        await caller.until(lambda each: each.heard_s > heard_s + PLAYED_S)


@pytest.mark.parametrize("text", ["Mhm.", "Mm-hmm.", "Uh-huh.", "Hmm", "Aha!", "Yeah, okay.", "Genau.", "", "..."])
def test_backchannel_words_are_assent(text: str) -> None:
    assert is_assent(_split_words(text))


@pytest.mark.parametrize("text", ["Stop.", "No.", "Hm, no.", "Who?", "Ma", "Yes, but"])
def test_other_words_are_not_assent(text: str) -> None:
    assert not is_assent(_split_words(text))


@pytest.mark.parametrize(
    ("heard", "echo"),
    [
        ("France is Paris", True),
        ("as you", True),
        ("Capital of Prance is Paris", True),
        ("Paris is France", False),
        ("you know what", False),
        ("the Paris", False),
        ("No, the capital is another one", False),
        ("Capital is Paris", True),  # two words are missing
        ("The is Paris", False),  # three
        ("Of Paris know", False),
        ("The capital of France is Paris as we all agree", True),  # seven of ten
    ],
)
def test_an_echo_is_recognized_even_if_some_words_are_misheard(heard: str, echo: bool) -> None:
    assert is_echo(_split_words(heard), _split_words("The capital of France is Paris, as you know.")) is echo


async def test_an_echo_transcribed_after_the_answer_is_ignored(place: Place, engines: Engines, store: Redis) -> None:
    engines.finals, engines.spoken_s = [(1900, "What is this?")], 6.0  # both echoes start before its end
    engines.answers = ["It is a test of the voice that comes back.", "Good."]
    async with place.call() as caller:
        conversation = caller.messages[0]["id"]
        await into_the_answer(caller, speech(WORD_S))
        engines.finals.append((0, "a test"))
        await caller.send(silence(ENDED_S))
        engines.finals.append((0, "Test of the boys that comes back."))
        engines.may_tell.clear()
        await caller.send(speech(1.0))
        while len(await said(store, conversation)) < 2:
            await caller.send(silence(0.02))
        engines.may_tell.set()
        await caller.send(silence(ENDED_S))
        engines.finals.append((0, "I see, thanks a lot."))
        await speak(caller)
        while len(found := await said(store, conversation)) < 4:
            await caller.send(silence(0.02))
    assert found[2:] == [("user", "I see, thanks a lot."), ("assistant", "Good.")]


async def test_speech_and_pauses_last_a_tenth_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """In windows of 32 ms. Softer sounds, such as voices in another room, are no speech."""
    vad, told, sent = TurnModels(1.2).create_voice_detector(), list[str](), 0
    monkeypatch.setattr(vad, "voice_confidence", lambda audio: float(any(audio)))
    monkeypatch.setattr(vad, "_get_smoothed_volume", lambda audio: np.frombuffer(audio, np.int16)[0] / 1000)
    vad.set_sample_rate(RATE)

    async def pause() -> None:
        told.append("pause")

    async def resume() -> None:
        told.append("resume")

    async def states(level: int, windows: int) -> list[str]:
        nonlocal sent
        sent += windows
        window = np.full(512, level, np.int16).tobytes()
        return [(await vad.analyze_audio(window)).name for _ in range(windows)]

    vad.on_pause, vad.on_resume = pause, resume
    assert await states(299, 5) == ["QUIET"] * 5
    assert await states(300, 4) == ["STARTING", "STARTING", "SPEAKING", "SPEAKING"]
    assert await states(0, 2) == ["STOPPING"] * 2
    assert told == []
    assert await states(0, 2) == ["STOPPING"] * 2
    assert told == ["pause"]
    assert await states(300, 2) == ["SPEAKING"] * 2
    assert told == ["pause", "resume"]
    assert (await states(0, 8))[-2:] == ["QUIET"] * 2
    assert told == ["pause", "resume", "pause"]
    assert vad.processed_bytes == 2 * 512 * sent


async def test_models_report_a_pause_and_continued_speech() -> None:
    vad, told = TurnModels(1.2).create_voice_detector(), []

    async def pause() -> None:
        told.append("pause")

    async def resume() -> None:
        told.append("resume")

    vad.set_sample_rate(RATE)
    vad.on_pause, vad.on_resume = pause, resume
    for part in (speech(1.0), silence(PAUSE_S), speech(1.0), silence(1.0)):
        for begin in range(0, part.size, 320):
            await vad.analyze_audio(part[begin : begin + 320].tobytes())
    assert told == ["pause", "resume", "pause"]
