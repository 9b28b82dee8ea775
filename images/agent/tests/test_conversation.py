"""Turns, interruptions and reconnects with the actual pipeline and its models of turns."""

import asyncio
import json
import logging
import re
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from pipecat.processors.aggregators.llm_context import LLMContextMessage
from redis.asyncio import Redis

from images.agent.tests.conftest import KEY, Caller, Place, running_agent, silence, speech
from images.agent.tests.engines import Engines
from images.conftest import BUSY_TIMEOUT_S, until
from images.gateway.tests.test_traces import Collector, collector
from voice_agent import speech_synthesis, tokens
from voice_agent.conversation import select_newest_messages
from voice_agent.memory import LEASE_S
from voice_blueprint.contract.metrics import METRICS
from voice_runtime import metrics, state
from voice_runtime.replies import decode_fields

__all__ = ["collector"]

SPOKEN_S = 2.0
SHALOM = "\u05e9\u05dc\u05d5\u05dd"
"""A right-to-left word."""
LONG = f"The answer {'goes on and on ' * 58}to its end."
"""A minute at the speed of English speech."""
ENDED_S = 3.0
"""Silence after which a turn is over, regardless of the end-of-turn model."""


async def said(store: Redis, conversation: str) -> list[tuple[str, str]]:
    found = await store.lrange(f"conversation:{conversation}", 0, -1)
    return [(each["role"], each["content"]) for each in map(json.loads, found)]


async def speak(caller: Caller) -> None:
    await caller.send(speech(SPOKEN_S))
    await caller.send(silence(ENDED_S))


async def test_a_turn_is_transcribed_answered_spoken_and_remembered(
    place: Place, engines: Engines, store: Redis
) -> None:
    engines.finals, engines.answers = [(1900, "What is this?")], ["It is a test."]
    lines: list[str] = []
    place.agent.metrics.cloudwatch = metrics.Metrics("test", "agent", lines.append)
    async with place.call() as caller:
        conversation = caller.messages[0]["id"]
        await speak(caller)
        await caller.until(lambda each: each.heard_s >= engines.spoken_s)
        assert caller.rate == 24000
        await until(lambda: place.agent.metrics.to_text().count(b"voice_agent_turn_seconds_count 1.0") == 1)
        # It has not waited for the maximum time of a last transcript.
        [took] = [
            float(line.split()[1])
            for line in place.agent.metrics.to_text().decode().splitlines()
            if line.startswith("voice_agent_turn_seconds_sum")
        ]
        assert took < place.agent.settings.final_within_s
        place.agent.metrics.flush(place.agent.conversation_count)
        told = {name: line[name] for line in map(json.loads, lines) for name in METRICS if name in line}
        assert told == {"TurnLatency": pytest.approx(1000 * took), "Conversations": 1}
        [asked], [spoken] = engines.asked, engines.spoken
        assert [each["role"] for each in asked["messages"]] == ["system", "user"]
        assert asked["messages"][0]["content"] == place.agent.settings.prompt
        assert asked["messages"][1]["content"] == "What is this?"
        assert asked["stream"] is True
        assert spoken == {"model": "voices", "voice": "joe", "response_format": "pcm", "input": "It is a test."}
        while len(await said(store, conversation)) < 2:
            await caller.send(silence(0.02))
        assert await said(store, conversation) == [("user", "What is this?"), ("assistant", "It is a test.")]
        # Callers receive no prompts and no metrics.
        assert [each["type"] for each in caller.messages] == ["conversation"]
    assert engines.engine_keys == {"gateway": None, "chat": "Bearer of-chat", "speech": "Bearer of-speech"}
    assert engines.traces.keys() == {"gateway", "chat", "speech"}
    traces = {trace for found in engines.traces.values() for trace in found}
    assert len({trace.split("-")[1] for trace in traces}) == 1
    assert not any(int(trace[-2:], 16) & 1 for trace in traces), "without a collector they are not sampled"
    assert await store.get(f"conversation:{conversation}:lease") is None


async def test_a_conversation_trace_contains_turns_but_no_text(
    engines: Engines, store: Redis, collector: Collector
) -> None:
    engines.finals, engines.answers = [(1900, "What is this?")], ["It is a test."]
    async with running_agent(engines, store, trace_collector=collector.url, traced_share=1) as place:
        async with place.call() as caller:
            await speak(caller)
            await caller.until(lambda each: each.heard_s >= engines.spoken_s)
            await until(lambda: b"voice_agent_turn_seconds_count 1.0" in place.agent.metrics.to_text())
        place.agent.traces.close()
    spans = {span.name: span for span in collector.spans}
    measured = place.agent.metrics.to_text().decode()
    stages = set(re.findall(r'voice_agent_stage_seconds_count{stage="(\w+)"}', measured))
    assert spans.keys() == {"conversation", "turn"} | stages
    assert {"llm_inference", "speech_synthesis"} <= stages
    whole, turn = spans["conversation"], spans["turn"]
    assert turn.parent_span_id == whole.span_id
    parts = [span for span in collector.spans if span.parent_span_id == turn.span_id]
    assert sum(took_ns(part) for part in parts) == pytest.approx(took_ns(turn), abs=1e6)
    # The engines' own spans belong to the same trace, if they send any.
    context = f"00-{whole.trace_id.hex()}-{whole.span_id.hex()}-03"  # sampled, and made by chance
    assert {trace for found in engines.traces.values() for trace in found} == {context}
    assert not any(word in str(collector.spans) for word in ("What is", "a test", place.agent.settings.prompt))


def took_ns(span: Span) -> int:
    return int(span.end_time_unix_nano - span.start_time_unix_nano)


async def test_speech_starts_with_the_first_clause_of_an_answer(place: Place, engines: Engines, store: Redis) -> None:
    """The model continues on request; a short answer leaves no time for the rest, and is not cut off."""
    engines.finals = [(1900, "What is this?")]
    engines.answers = ["Yes, as far as I know, | this is a test, and nothing else.", "Of course, it is one."]
    async with place.call() as caller:
        conversation = caller.messages[0]["id"]
        for turn in range(2):
            await speak(caller)
            while len(await said(store, conversation)) < 2 * (turn + 1):
                await caller.send(silence(0.02))
            engines.finals.append((0, "And this?"))
    assert [each["input"] for each in engines.spoken] == [
        "Yes, as far as I know,", "this is a test, and nothing else.", "Of course, it is one."
    ]  # fmt: skip
    assert [text for role, text in await said(store, conversation) if role == "assistant"] == [
        "Yes, as far as I know, this is a test, and nothing else.", "Of course, it is one."
    ]  # fmt: skip


async def test_emoji_and_stage_directions_are_remembered_but_not_spoken(
    place: Place, engines: Engines, store: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "voice_agent.usage")
    engines.finals, engines.answers = (
        [(1900, "\u0645\u0631\u062d\u0628\u0627 \U0001f44b")],
        [f"{SHALOM} \U0001f60a. \U0001f389"],
    )
    async with place.call() as caller:
        conversation = caller.messages[0]["id"]
        await speak(caller)
        while len(await said(store, conversation)) < 2:
            await caller.send(silence(0.02))
    [asked] = engines.asked
    assert asked["messages"][1]["content"] == engines.finals[0][1]
    assert [each["input"] for each in engines.spoken] == [f"{SHALOM}."]
    (_, question), (_, answer) = await said(store, conversation)
    assert question == engines.finals[0][1]
    assert answer.split() == [SHALOM, "\U0001f60a.", "\U0001f389"]
    [used] = [record.__dict__["fields"] for record in caplog.records if record.message == "usage"]
    assert (used["conversation"], used["spoken_characters"], used["answer_tokens"]) == (
        conversation,
        len(SHALOM) + 1,
        1,
    )
    assert used["prompt_tokens"] == len(json.dumps(asked["messages"]).split())
    day = datetime.now(UTC).date().isoformat()
    counts = decode_fields(await store.hgetall(state.build_agent_usage_key("", day)))
    names = ("prompt_tokens", "answer_tokens", "spoken_characters")
    assert counts == {name: str(used[name]) for name in names}
    assert await store.sismember(state.build_agent_day_callers_key(day), "")


async def test_several_finals_form_one_question(place: Place, engines: Engines) -> None:
    """Its transcripts cover the speech between two commits; a pause is not the end of a turn."""
    engines.finals = [(900, "What I would like to know"), (2200, "is what this is.")]
    engines.answers = ["A test."]
    async with place.call() as caller:
        await until(lambda: len(engines.updates) == 1)
        engines.may_tell.clear()
        await caller.send(speech(1.0))
        await caller.send(silence(0.3))
        await until(lambda: len(engines.commits) == 1)
        await caller.send(speech(1.0))
        engines.may_tell.set()
        await until(lambda: engines.told == 1)
        engines.may_tell.clear()
        await caller.send(silence(ENDED_S))
        assert engines.asked == [], "the first transcript has ended the turn"
        engines.may_tell.set()
        await caller.until(lambda each: each.heard_s > 0)
    assert [asked["messages"][-1]["content"] for asked in engines.asked] == [
        "What I would like to know is what this is."
    ]


async def test_two_pending_transcripts_form_one_question(place: Place, engines: Engines) -> None:
    engines.finals, engines.answers = [(900, "What I would like to know"), (2200, "is what this is.")], ["A test."]
    async with place.call() as caller:
        await until(lambda: len(engines.updates) == 1)
        engines.may_tell.clear()
        await caller.send(speech(1.0))
        await caller.send(silence(0.3))
        await caller.send(speech(1.0))
        await caller.send(silence(ENDED_S))
        engines.may_tell.set()
        await caller.until(lambda each: each.heard_s > 0)
    assert [asked["messages"][-1]["content"] for asked in engines.asked] == [
        "What I would like to know is what this is."
    ]


@pytest.mark.parametrize("language", ["", "de"])
async def test_the_gateway_receives_the_spoken_language(engines: Engines, store: Redis, language: str) -> None:
    async with running_agent(engines, store, language=language) as place, place.call():
        await until(lambda: len(engines.updates) == 1)
    assert engines.updates[0]["audio"]["input"]["transcription"] == ({"language": language} if language else {})


async def test_silence_keeps_a_muted_callers_session(
    engines: Engines, store: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voice_agent.speech_to_text.SILENCE_TIMEOUT_S", 0.2)
    async with running_agent(engines, store) as place, place.call():
        await until(lambda: engines.taken_ms > 0)


async def test_a_lease_is_renewed_twice_before_it_expires(
    place: Place, store: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0.01)

    monkeypatch.setattr("voice_agent.conversation.asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": sleep}))
    async with place.call() as caller:
        lease = f"conversation:{caller.messages[0]['id']}:lease"
        await store.persist(lease)
        while await store.ttl(lease) < 0:
            await asyncio.sleep(0.01)
    assert max(pauses) <= LEASE_S / 2


async def test_an_interruption_silences_the_agent_within_300_ms_of_audio(
    place: Place, engines: Engines, store: Redis
) -> None:
    """Measured in sent audio, so that a slow machine is not a slower agent."""
    engines.finals, engines.answers = [(1900, "What is this?")], [LONG]
    engines.spoken_s = 60.0
    async with place.call() as caller:
        conversation = caller.messages[0]["id"]
        await speak(caller)
        await caller.until(lambda each: each.heard_s > 0)
        await caller.send(silence(0.2))
        assert caller.interruptions == 1, "that was the turn's own beginning"
        await caller.send(speech(0.3))
        heard_s = caller.heard_s
        await caller.send(speech(1.2))
        await caller.until(lambda each: each.interruptions >= 2)
        measured = dict(line.rsplit(" ", 1) for line in place.agent.metrics.to_text().decode().splitlines())
        assert measured["voice_agent_barge_in_seconds_count"] == "1.0"
        assert 0.1 <= float(measured["voice_agent_barge_in_seconds_sum"]) < BUSY_TIMEOUT_S
        assert heard_s < engines.spoken_s
        while len(found := await said(store, conversation)) < 2:
            await caller.send(silence(0.02))
        assert caller.heard_s == pytest.approx(heard_s, abs=0.1)
        # As it was played: the start without the end.
        assert found[1][0] == "assistant"
        assert engines.spoken[0]["input"].startswith(found[1][1])
        assert not found[1][1].endswith("end.")


async def test_an_answer_is_remembered_in_order_whatever_the_speech_timing(
    place: Place, engines: Engines, store: Redis
) -> None:
    """Word times are estimated; Pipecat treats speech that takes more than three seconds as missing."""
    answer = "It is a test of the memory of words. It has a second sentence that is as long."
    engines.finals, engines.answers = [(1900, "What is this?")], [answer]
    engines.spoken_s, engines.speaks_after_s = 0.5, 3.2
    async with place.call() as caller:
        conversation = caller.messages[0]["id"]
        await speak(caller)
        while len(found := await said(store, conversation)) < 2:
            await caller.send(silence(0.02))
        assert found[1] == ("assistant", answer)
        await caller.until(lambda each: each.heard_s >= 2 * 0.9 * engines.spoken_s)  # the last audio may be on its way
        assert caller.heard_s == pytest.approx(2 * engines.spoken_s, abs=0.1)


async def test_a_pending_question_is_answered_after_a_reconnect(place: Place, engines: Engines, store: Redis) -> None:
    conversation = "c" * 32
    for role, content in (("user", "Hello."), ("assistant", "Hello!"), ("user", "Who are you?")):
        await store.rpush(f"conversation:{conversation}", json.dumps({"role": role, "content": content}))
    engines.answers = ["A test."]
    token = tokens.create_token(KEY, conversation, 60)
    async with place.call(f"/v1/conversations/{conversation}", token) as caller:
        assert caller.messages[0]["id"] == conversation
        await caller.until(lambda each: each.heard_s > 0)
    assert [each["content"] for each in engines.asked[0]["messages"][1:]] == ["Hello.", "Hello!", "Who are you?"]


async def test_an_answered_question_is_not_answered_again_after_a_reconnect(
    place: Place, engines: Engines, store: Redis
) -> None:
    conversation, history = "c" * 32, [("user", "Hello."), ("assistant", "Hello!")]
    for role, content in history:
        await store.rpush(f"conversation:{conversation}", json.dumps({"role": role, "content": content}))
    engines.finals, engines.answers = [(1900, "What is this?")], ["A test."]
    async with place.call(f"/v1/conversations/{conversation}", tokens.create_token(KEY, conversation, 60)) as caller:
        await speak(caller)
        await caller.until(lambda each: each.heard_s > 0)
    [asked] = engines.asked
    assert [(each["role"], each["content"]) for each in asked["messages"][1:]] == [*history, ("user", "What is this?")]


async def test_each_request_extends_the_previous_prompt_also_after_a_reconnect(
    place: Place, engines: Engines, store: Redis
) -> None:
    """The requests are equal byte by byte, so that an engine's prefix cache, or LMCache, contains all but the newest
    turn.
    """
    engines.finals = [(1900, "What is this?"), (6900, "And what is that?")]
    engines.answers = ["It is a test.", "Another test.", "Both are tests."]

    async with place.call() as caller:
        conversation, token = caller.messages[0]["id"], caller.messages[0]["token"]
        for turn in (1, 2):
            await speak(caller)
            while len(await said(store, conversation)) < 2 * turn:
                await caller.send(silence(0.02))
    await store.rpush(f"conversation:{conversation}", json.dumps({"role": "user", "content": "Are they?"}))
    async with place.call(f"/v1/conversations/{conversation}", token) as caller:
        await caller.until(lambda each: each.heard_s > 0)
    first, second, third = (json.dumps(asked["messages"]).removesuffix("]") for asked in engines.asked)
    assert second.startswith(first)
    assert third.startswith(second)
    # The end of a message list is not in the cache.
    tokens = [len(each.split()) for each in (first, second, third)]
    told = dict(line.split() for line in place.agent.metrics.to_text().decode().splitlines() if line[0] != "#")
    assert float(told["voice_agent_prompt_tokens_total"]) == sum(tokens)
    assert float(told["voice_agent_cached_prompt_tokens_total"]) == sum(tokens[:2]) - 2
    (session,) = set(engines.sessions)
    assert re.fullmatch("[0-9a-f]{32}", session), "the router would lead each turn to another replica"
    assert session != conversation, "whose name opens a telephone call's"


async def test_a_long_conversation_keeps_the_newest_messages_and_a_cacheable_prompt(
    place: Place, engines: Engines, store: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voice_agent.conversation.MAX_MESSAGES", 4)
    conversation = "c" * 32
    for turn in (1, 2):
        for role, content in (("user", f"Question {turn}?"), ("assistant", f"Answer {turn}.")):
            await store.rpush(f"conversation:{conversation}", json.dumps({"role": role, "content": content}))
    engines.answers, engines.spoken_s = ["Answer 3.", "Answer 4.", "Answer 5."], 0.2
    async with place.call(f"/v1/conversations/{conversation}", tokens.create_token(KEY, conversation, 60)) as caller:
        for turn in (3, 4, 5):
            engines.finals.append((0, f"Question {turn}?"))
            await speak(caller)
            while len(await said(store, conversation)) < 2 * turn:
                await caller.send(silence(0.02))
    asked = [[each["content"] for each in asked["messages"][1:]] for asked in engines.asked]
    assert asked[0] == ["Question 1?", "Answer 1.", "Question 2?", "Answer 2.", "Question 3?"]
    assert asked[1] == ["Question 3?", "Answer 3.", "Question 4?"]
    assert asked[2] == [*asked[1], "Answer 4.", "Question 5?"]


def test_a_shortened_conversation_contains_no_tool_result_without_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voice_agent.conversation.MAX_MESSAGES", 6)
    roles = ["user", "assistant", "user", "assistant", "tool", "assistant", "user", "assistant"]
    messages: list[LLMContextMessage] = [{"role": role, "content": f"{role}"} for role in roles]  # type: ignore[misc]
    assert select_newest_messages(messages[:6]) == messages[:6]
    assert select_newest_messages(messages[:7]) == messages[6:7]
    assert select_newest_messages(messages) == messages[6:]
    # Without a question in the newer half, the conversation is shortened after a later answer.
    calls: list[LLMContextMessage] = [messages[0], *messages[3:6] * 2]
    assert select_newest_messages(calls) == calls


async def test_an_agent_without_audio_stops_talking(place: Place, engines: Engines) -> None:
    async with place.call() as caller:
        engines.refuses = 503
        await engines.sockets[-1].close(1012)
        assert await caller.closed() == 1013


async def test_the_agent_reconnects_when_a_gateway_stops(place: Place, engines: Engines) -> None:
    engines.finals, engines.answers = [(1900, "What is this?")], ["A test."]
    async with place.call() as caller:
        await until(lambda: len(engines.updates) == 1)
        await engines.sockets[-1].close(1012)
        await until(lambda: len(engines.updates) == 2)
        await speak(caller)
        await caller.until(lambda each: each.heard_s > 0)


async def test_speech_during_a_reconnect_does_not_prevent_later_transcripts(place: Place, engines: Engines) -> None:
    engines.finals, engines.answers = [(1900, "What is this?")], ["A test."]
    async with place.call() as caller:
        await until(lambda: len(engines.updates) == 1)
        engines.may_enter.clear()
        await engines.sockets[-1].close(1012)
        await until(lambda: len(engines.keys) == 2)
        await speak(caller)
        engines.may_enter.set()
        await until(lambda: len(engines.updates) == 2)
        await speak(caller)
        await caller.until(lambda each: each.heard_s > 0)


async def test_the_model_calls_the_operators_tools(engines: Engines, store: Redis) -> None:
    engines.finals = [(1900, "How is the weather in Bonn?")]
    engines.answers = ['weather({"city": "Bonn"})', "The sky is clear."]
    engines.names = {"": "anna"}
    async with running_agent(engines, store, tools_url=f"{engines.url}/tools") as place, place.call() as caller:
        await speak(caller)
        await caller.until(lambda each: each.heard_s > 0)
        conversation = caller.messages[0]["id"]
    called = {"name": "weather", "arguments": {"city": "Bonn"}, "conversation": conversation, "caller": "anna"}
    assert engines.calls == [called]
    assert engines.asked[0]["tools"][0]["function"]["parameters"]["required"] == ["city"]
    assert json.loads(engines.asked[1]["messages"][-1]["content"]) == {"sky": "clear"}


async def test_a_failing_speech_engine_costs_one_answer(
    place: Place, engines: Engines, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "voice_agent.conversation")
    engines.finals, engines.answers, engines.speech_status = [(1900, "What is this?")], ["A test.", "A test."], 503
    async with place.call() as caller:
        await speak(caller)
        await until(lambda: len(engines.spoken) == 1)
        engines.finals.append((0, "And this?"))
        engines.speech_status = 200
        await speak(caller)
        await caller.until(lambda each: each.heard_s > 0)
    ended = [record.__dict__["fields"] for record in caplog.records if record.message == "conversation ended"]
    assert ended == [{"code": 1000}], "the caller has ended it"


async def test_a_stopping_agent_waits_for_a_tool(
    engines: Engines, store: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voice_agent.conversation.LAST_TURN_TIMEOUT_S", 2 * BUSY_TIMEOUT_S)
    engines.finals = [(1900, "How is the weather in Bonn?")]
    engines.answers = ['weather({"city": "Bonn"})', "The sky is clear."]
    engines.may_call.clear()
    async with running_agent(engines, store, tools_url=f"{engines.url}/tools") as place, place.call() as caller:
        await speak(caller)
        await until(lambda: len(engines.calls) == 1)
        place.agent.shutting_down.set()
        engines.may_call.set()
        assert await caller.closed() == 1012
        assert caller.heard_s == pytest.approx(engines.spoken_s, abs=0.1)


async def test_a_stalled_language_model_costs_one_answer(
    place: Place, engines: Engines, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voice_agent.chat.CHAT_TIMEOUT_S", 0.3)
    engines.finals, engines.answers = [(1900, "What is this?")], ["Too late.", "A test."]
    engines.may_answer.clear()
    async with place.call() as caller:
        await speak(caller)
        await until(lambda: "an engine fails" in caplog.messages)
        assert len(engines.asked) == 2, "the request is repeated once"
        engines.may_answer.set()
        engines.finals.append((0, "And this?"))
        await speak(caller)
        await caller.until(lambda each: each.heard_s > 0)


async def test_a_stopping_agent_waits_for_a_tool_that_it_announces(
    engines: Engines, store: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voice_agent.conversation.LAST_TURN_TIMEOUT_S", 2 * BUSY_TIMEOUT_S)
    engines.finals = [(1900, "How is the weather in Bonn?")]
    engines.answers = ['I will look. weather({"city": "Bonn"})', "The sky is clear."]
    engines.may_call.clear()
    async with running_agent(engines, store, tools_url=f"{engines.url}/tools") as place, place.call() as caller:
        conversation = caller.messages[0]["id"]
        await speak(caller)
        await caller.until(lambda each: each.heard_s >= engines.spoken_s)
        while len(await said(store, conversation)) < 2:
            await caller.send(silence(0.02))
        await asyncio.sleep(1.0)  # until the agent has stopped speaking
        place.agent.shutting_down.set()
        await asyncio.sleep(0.2)
        engines.may_call.set()
        assert await caller.closed() == 1012
        assert caller.heard_s == pytest.approx(2 * engines.spoken_s, abs=0.1)
    assert [text for _, text in await said(store, conversation)][1:] == ["I will look.", "The sky is clear."]


@pytest.mark.parametrize("result", [[], None, 0])
async def test_a_tool_without_findings_is_answered(engines: Engines, store: Redis, result: object) -> None:
    engines.finals, engines.tool_result = [(1900, "Who is in Bonn?")], result
    engines.answers = ['weather({"city": "Bonn"})', "There is none."]
    async with running_agent(engines, store, tools_url=f"{engines.url}/tools") as place, place.call() as caller:
        await speak(caller)
        await caller.until(lambda each: each.heard_s > 0)
    assert [each["input"] for each in engines.spoken] == ["There is none."]


async def test_an_empty_answer_to_a_tool_ends_the_turn(
    engines: Engines, store: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voice_agent.conversation.LAST_TURN_TIMEOUT_S", 2 * BUSY_TIMEOUT_S)
    engines.finals = [(1900, "How is the weather in Bonn?")]
    engines.answers = ['I will look. weather({"city": "Bonn"})', ""]
    async with running_agent(engines, store, tools_url=f"{engines.url}/tools") as place, place.call() as caller:
        await speak(caller)
        await until(lambda: len(engines.asked) == 2)
        place.agent.shutting_down.set()
        assert await caller.closed() == 1012


@pytest.mark.parametrize("last_sentence", ["\U0001f389", "It fails."])
async def test_an_answer_whose_last_sentence_has_no_audio_is_remembered(
    place: Place, engines: Engines, store: Redis, monkeypatch: pytest.MonkeyPatch, last_sentence: str
) -> None:
    """Regression: the answer ended only when its next audio was overdue, after 30 s."""
    monkeypatch.setattr(speech_synthesis, "SPEECH_TIMEOUT_S", 3600.0)
    engines.finals, engines.answers = [(1900, "What is this?")], [f"It is a test. {last_sentence}"]
    engines.unspoken = "It fails."
    async with place.call() as caller, asyncio.timeout(BUSY_TIMEOUT_S):
        await speak(caller)
        while len(await said(store, caller.messages[0]["id"])) < 2:
            await caller.send(silence(0.02))


async def test_answers_without_speakable_text_do_not_end_the_conversation(
    place: Place, engines: Engines, store: Redis
) -> None:
    engines.answers = [*["\U0001f44d"] * 3, "A test."]
    async with place.call() as caller:
        conversation = caller.messages[0]["id"]
        for turn in range(1, 5):
            engines.finals.append((0, f"Question {turn}?"))
            await speak(caller)
            while len(await said(store, conversation)) < 2 * turn:
                await caller.send(silence(0.02))
        await caller.until(lambda each: each.heard_s >= 0.9 * engines.spoken_s)
    assert [each["input"] for each in engines.spoken] == ["A test."]


async def test_a_stopping_agent_answers_the_interrupting_question(
    place: Place, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voice_agent.conversation.LAST_TURN_TIMEOUT_S", 2 * BUSY_TIMEOUT_S)
    engines.finals, engines.answers, engines.spoken_s = [(1900, "What is this?")], [LONG, "The other one."], 60.0
    async with place.call() as caller:
        await speak(caller)
        await caller.until(lambda each: each.heard_s > 0)
        await caller.send(speech(1.5))
        await caller.until(lambda each: each.interruptions >= 2)
        heard_s, engines.spoken_s = caller.heard_s, 1.0
        await asyncio.sleep(0.2)  # until the interrupted answer is stored
        place.agent.shutting_down.set()
        engines.finals.append((0, "No, the other one?"))
        sending = asyncio.create_task(caller.send(silence(ENDED_S)))  # it may take longer than the answer
        assert await caller.closed() == 1012
        sending.cancel()
        assert caller.heard_s == pytest.approx(heard_s + engines.spoken_s, abs=0.2)


async def test_two_agents_never_serve_the_same_conversation(place: Place, store: Redis) -> None:
    async with place.call() as caller:
        await store.set(f"conversation:{caller.messages[0]['id']}:lease", "another", ex=60)
        assert await caller.closed() == 1008


async def test_remaining_callers_at_the_end_of_a_drain_must_reconnect(place: Place) -> None:
    async with place.call() as caller:
        place.agent.shutting_down.set()
        assert await caller.closed() == 1012


async def test_a_stopping_agent_completes_its_turns(
    place: Place, engines: Engines, store: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voice_agent.conversation.LAST_TURN_TIMEOUT_S", 2 * BUSY_TIMEOUT_S)
    engines.finals, engines.answers, engines.spoken_s = [(1900, "What is this?")], ["It is a test."], 2.0
    async with place.call() as caller:
        conversation = caller.messages[0]["id"]
        await caller.send(speech(SPOKEN_S))
        place.agent.shutting_down.set()
        await caller.send(silence(ENDED_S))
        assert await caller.closed() == 1012
        assert caller.heard_s == pytest.approx(engines.spoken_s, abs=0.1)
    assert await said(store, conversation) == [("user", "What is this?"), ("assistant", "It is a test.")]


async def test_two_callers_are_served_concurrently(engines: Engines, store: Redis) -> None:
    async with running_agent(engines, store, conversations=2) as place, place.call() as first, place.call() as second:
        assert first.messages[0]["id"] != second.messages[0]["id"]
        assert all(re.fullmatch("[0-9a-f]{32}", each.messages[0]["id"]) for each in (first, second))
        assert place.agent.conversation_count == 2


async def test_a_silent_conversation_is_closed(engines: Engines, store: Redis) -> None:
    async with running_agent(engines, store, idle_timeout_s=0.5) as place, place.call() as caller:
        assert await caller.closed() == 1000
