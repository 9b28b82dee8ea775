"""Admission, and state that the process shares between conversations."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import httpx2
import pytest
import websockets
from redis.asyncio import Redis

from images.agent.tests.conftest import KEY, Place, running_agent
from images.agent.tests.engines import Engines
from images.conftest import until
from voice_agent import server, tokens
from voice_agent.models import TurnModels
from voice_agent.refusals import RefusedError
from voice_agent.speech_synthesis import _find_word_offsets
from voice_ops.images.locks import parse_lock
from voice_runtime import metrics
from voice_sandbox.loopback import find_free_port


async def refused(place: Place, path: str = "/v1/conversations", token: str = "") -> tuple[int, str]:
    headers = {"X-Voice-Token": token} if token else {}
    with pytest.raises(websockets.InvalidStatus) as caught:
        await websockets.connect(f"ws{place.url[4:]}{path}", additional_headers=headers)
    return caught.value.response.status_code, (caught.value.response.body or b"").decode()


async def test_a_full_agent_rejects_callers_before_accepting_the_socket(place: Place) -> None:
    async with place.call():
        lines: list[str] = []
        place.agent.metrics.cloudwatch = metrics.Metrics("test", "agent", lines.append)
        status, said = await refused(place)
        place.agent.metrics.flush(place.agent.conversation_count)
        assert status == 503
        assert json.loads(lines[-1])["ConversationsRefused"] == 1
        assert "this agent holds 1 conversations, its maximum" in said
    text = place.agent.metrics.to_text().decode()
    assert 'voice_agent_refused_total{reason="busy"} 1.0' in text
    assert "voice_agent_slots 1.0" in text
    assert "voice_agent_conversations 0.0" in text


async def test_a_draining_agent_is_unhealthy_and_rejects_callers(place: Place) -> None:
    async with httpx2.AsyncClient() as client:
        assert (await client.get(f"{place.url}/healthz")).status_code == 200
        place.agent.draining.set()
        assert (await client.get(f"{place.url}/healthz")).status_code == 503
        assert (await client.get(f"{place.url}/livez")).status_code == 200
    assert (await refused(place))[0] == 503


@pytest.mark.parametrize(
    "token", ["", "none", tokens.create_token(KEY, "other", 60), tokens.create_token("f" * 32, "c", 60)]
)
async def test_a_conversation_requires_its_own_token(place: Place, token: str) -> None:
    assert (await refused(place, "/v1/conversations/c", token))[0] == 401


async def test_callers_that_the_gateway_rejects_are_rejected(place: Place, engines: Engines) -> None:
    engines.refuses = 401
    status, said = await refused(place)
    assert (status, json.loads(said)) == (401, {"error": "busy", "detail": "full"})
    engines.refuses = 500
    assert (await refused(place))[0] == 503
    assert place.agent.conversation_count == 0


async def test_an_agent_without_its_gateway_or_store_rejects_callers(engines: Engines, store: Redis) -> None:
    async with running_agent(engines, store, gateway_url=f"http://127.0.0.1:{find_free_port()}") as place:
        status, said = await refused(place)
    assert (status, json.loads(said)["error"]) == (503, "gateway away")
    async with running_agent(engines, Redis(port=find_free_port())) as place:
        status, said = await refused(place)
    assert (status, json.loads(said)["error"]) == (503, "state store away")


async def test_a_caller_whose_gateway_is_silent_is_rejected_in_time(
    engines: Engines, store: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voice_agent.server.AUTHENTICATION_TIMEOUT_S", 0.2)

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as gateway:
        url = f"http://127.0.0.1:{gateway.sockets[0].getsockname()[1]}"
        async with running_agent(engines, store, gateway_url=url) as place:
            status, said = await refused(place)
    assert (status, json.loads(said)["error"]) == (503, "not authenticated")


async def test_the_drain_time_includes_a_last_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """ECS and Kubernetes kill the process after the drain time."""
    waits: list[float] = []

    async def wait_for(ended: Coroutine[Any, Any, None], timeout: float) -> None:
        ended.close()
        waits.append(timeout)
        raise TimeoutError

    monkeypatch.setattr(server, "asyncio", SimpleNamespace(wait_for=wait_for))
    for drain_s, expected in ((50, [30, 25]), (5, [0, 10])):
        agent = MagicMock(draining=asyncio.Event(), settings=SimpleNamespace(drain_timeout_s=drain_s))
        agent.draining.set()
        waits.clear()
        await server.drain(agent)
        assert waits == expected
        agent.shutting_down.set.assert_called_once()


async def test_a_drain_ends_with_the_last_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = SimpleNamespace(conversation_count=1, siblings=SimpleNamespace(forwarded_count=1))
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        agent.conversation_count, agent.siblings.forwarded_count = (
            agent.siblings.forwarded_count,
            0,
        )  # first one ends, and then the other

    monkeypatch.setattr(server, "asyncio", SimpleNamespace(sleep=sleep))
    await server._wait_until_closed(agent)  # type: ignore[arg-type]  # the part of an agent that it reads
    assert len(pauses) == 2
    agent.siblings.forwarded_count = 1
    await server._wait_until_closed(agent)  # type: ignore[arg-type]
    assert len(pauses) == 4
    assert min(pauses) > 0


async def test_a_callers_key_is_forwarded_to_the_gateway(place: Place, engines: Engines) -> None:
    url = f"ws{place.url[4:]}/v1/conversations"
    async with websockets.connect(url, additional_headers={"Authorization": "Bearer of-mine"}):
        pass
    await until(lambda: place.agent.conversation_count == 0)
    protocols = [websockets.Subprotocol(each) for each in ("voice.v1", "voice.key.of-a-page")]
    async with websockets.connect(url, subprotocols=protocols) as socket:
        assert socket.subprotocol == "voice.v1"
    assert engines.keys == ["Bearer of-mine", "Bearer of-a-page"]


async def test_an_agent_without_its_tools_accepts_no_callers(engines: Engines, store: Redis) -> None:
    async with running_agent(engines, store, tools_url=f"{engines.url}/nowhere") as place:
        status, said = await refused(place)
    assert (status, json.loads(said)["error"]) == (503, "tools away")


def test_no_dependency_sends_telemetry_about_callers() -> None:
    """Pipecat's runner includes Sentry and a cloud's tools; Piper's license would apply to a combined program."""
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, voice_agent.__main__; print(*sys.modules)"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    ).stdout.split()
    assert "pipecat.pipeline.worker" in loaded
    roots = {name.partition(".")[0] for name in loaded} | {name for name in loaded if name.startswith("pipecat.")}
    assert roots & {"sentry_sdk", "pipecat.runner", "pipecatcloud", "piper"} == set()
    packages = parse_lock((Path(__file__).parents[1] / "requirements.txt").read_text(encoding="utf-8")).keys()
    assert packages & {"sentry-sdk", "pipecatcloud", "piper-tts", "pipecat-ai-small-webrtc-prebuilt"} == set()


def test_models_are_loaded_once_and_have_separate_state() -> None:
    models = TurnModels(1.0)
    first, second = models.create_voice_detector(), models.create_voice_detector()
    assert first._model.session is second._model.session
    assert first._model is not second._model
    assert first._executor is not second._executor
    assert models.create_turn_analyzer()._session is models.create_turn_analyzer()._session
    assert models.create_turn_analyzer()._audio_buffer is not models.create_turn_analyzer()._audio_buffer
    assert models.create_turn_analyzer().params.stop_secs == 1.0


def test_words_have_correct_positions() -> None:
    assert _find_word_offsets("to be, or to be") == [("to", 0), ("be,", 3), ("or", 7), ("to", 10), ("be", 13)]


async def test_latency_figures_are_not_sent_to_callers(place: Place) -> None:
    async with httpx2.AsyncClient() as client:
        assert (await client.get(f"{place.url}/metrics")).status_code == 404


@pytest.mark.parametrize("path", ["/v1/conversations", "/v1/realtime", "/v1/twilio"])
async def test_foreign_web_pages_cannot_connect_to_a_local_agent(place: Place, path: str) -> None:
    url = f"ws{place.url[4:]}{path}"
    for headers in ({"Origin": "https://evil.test"}, {"Origin": "null"}, {"Origin": "http://localhost.evil.test"}):
        with pytest.raises(websockets.InvalidStatus) as caught:
            await websockets.connect(url, additional_headers=headers)
        assert caught.value.response.status_code == 403
    async with websockets.connect(url, additional_headers={"Origin": "http://localhost:3000"}):
        pass
    async with httpx2.AsyncClient() as client:
        for name, status in (("evil.test", 403), ("localhost", 404)):
            assert (await client.get(f"{place.url}/v1", headers={"Host": name})).status_code == status
    await until(lambda: place.agent.conversation_count == 0)


@pytest.mark.parametrize(
    ("status", "body", "told", "error", "retry_s"),
    [
        (401, b'{"error": "unauthorized", "detail": "no"}', 401, "unauthorized", None),
        (403, b'{"error": "foreign", "detail": "no"}', 403, "foreign", None),
        (429, b'{"error": "busy", "detail": "no"}', 429, "busy", None),
        (503, b'{"error": "draining", "detail": "no"}', 503, "draining", "1"),
        (500, b"Internal Server Error", 503, "refused", "1"),
        (404, b'["error"]', 503, "refused", "1"),
    ],
)
def test_refusals_of_the_gateway_that_concern_the_caller_are_passed_on(
    status: int, body: bytes, told: int, error: str, retry_s: str | None
) -> None:
    answer = RefusedError.from_response(status, body).to_response()
    assert (answer.status_code, answer.headers.get("Retry-After")) == (told, retry_s)
    assert json.loads(bytes(answer.body))["error"] == error
