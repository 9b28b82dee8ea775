"""One engine with the flags of a shipped file: it answers, finds cached prompts, drains, and hangs."""

import concurrent.futures
import itertools
import time

import httpx2
import pytest

from tests.engines.conftest import Tokens
from voice_sandbox.engines.processes import EngineProcess

PROMPT = "hello world this is a small tokenizer for tests of engines " * 40
MODEL = "qwen3-8b"
PATIENCE_S = 600.0
"""Timeout on a busy machine, which may need a second per token."""


def ask(engine: EngineProcess, prompt: str = PROMPT, tokens: int = 4, timeout_s: float = PATIENCE_S) -> httpx2.Response:
    body = {"model": MODEL, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
    return httpx2.post(f"{engine.url}/v1/completions", json=body, timeout=timeout_s)


def test_an_engine_accepts_the_rendered_flags_and_answers(chat: EngineProcess) -> None:
    answer = ask(chat).raise_for_status().json()
    assert answer["model"] == MODEL
    assert answer["usage"]["completion_tokens"] == 4


def test_a_repeated_prompt_is_a_prefix_cache_hit(chat: EngineProcess) -> None:
    ask(chat, PROMPT + "once").raise_for_status()
    before = chat.fetch_metrics()
    ask(chat, PROMPT + "twice").raise_for_status()
    after = chat.fetch_metrics()
    queries, hits = (
        after[name] - before[name] for name in ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total")
    )
    print(f"prefix cache: {hits:.0f} of {queries:.0f} tokens")
    assert hits / queries > 0.5


def test_another_name_of_the_model_is_refused(chat: EngineProcess) -> None:
    body = {"model": "qwen3-4b", "prompt": PROMPT, "max_tokens": 1}
    refused = httpx2.post(f"{chat.url}/v1/completions", json=body, timeout=PATIENCE_S)
    assert (refused.status_code, "qwen3-4b" in refused.text) == (404, True)


def test_more_tokens_than_the_context_length_are_refused(chat: EngineProcess) -> None:
    refused = ask(chat, PROMPT * 40)
    assert refused.status_code == 400
    context = chat.process.argv[chat.process.argv.index("--max-model-len") + 1]
    assert context in refused.text


def test_earlier_turns_of_a_conversation_are_cache_hits(chat: EngineProcess) -> None:
    tokens, messages = Tokens(chat), []
    shares = []
    for turn in range(3):
        messages.append({"role": "user", "content": f"turn {turn} {PROMPT}"})
        body = {"model": MODEL, "messages": messages, "max_tokens": 4, "ignore_eos": True, "temperature": 0}
        answer = httpx2.post(f"{chat.url}/v1/chat/completions", json=body, timeout=PATIENCE_S).raise_for_status().json()
        messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
        asked, cached = tokens.take()
        shares.append(cached / asked)
        print(f"turn {turn}: {cached} of {asked} tokens cached")
    assert shares[0] == 0
    assert 0 < shares[1] < shares[2]


def test_a_hung_core_only_answers_the_health_check(chat: EngineProcess) -> None:
    chat.suspend_engine_cores()
    try:
        with pytest.raises(httpx2.TimeoutException):
            ask(chat, timeout_s=5)
        assert chat.fetch_health_status(PATIENCE_S) == 200
        figures = chat.fetch_metrics()
        assert figures["vllm:num_requests_running"] == figures["vllm:num_requests_waiting"] == 0
    finally:
        chat.resume_processes()
    ask(chat).raise_for_status()


def test_a_stopping_engine_completes_requests_and_rejects_new_ones(chat: EngineProcess) -> None:
    """The last test of this engine, which is stopped."""
    while chat.fetch_metrics()["vllm:num_requests_running"]:  # requests abandoned by an earlier test
        time.sleep(0.05)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        asked = threads.submit(ask, chat, PROMPT, 400)
        while not asked.done() and not chat.fetch_metrics()["vllm:num_requests_running"]:
            time.sleep(0.05)
        chat.terminate()
        late = []
        while not asked.done():
            try:
                late.append(ask(chat, "late", 1).status_code)
            except httpx2.TransportError:
                late.append(0)  # it has ended
            time.sleep(0.1)
    assert asked.result().json()["usage"]["completion_tokens"] == 400
    refused = list(itertools.dropwhile(lambda status: status == 200, late))
    print(f"{len(late)} requests after SIGTERM, of which {len(refused)} were refused with {sorted(set(refused))}")
    assert 200 not in refused, "once it has begun to drain, it takes no more"
    assert set(refused) & {500, 503}, (
        "callers meet a status before the connection ends: routers have to have dropped it"
    )
    assert chat.wait(PATIENCE_S) == 0
