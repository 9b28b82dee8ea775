"""Three spoken questions through agent, router and a real Voxtral, with the engine's cache hits.

The engine runs with the flags of ``deployments/hearing.yaml``. A grammar forces the random weights to answer in the
format that the agent expects. Gateway and speech are simulated.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pipecat.adapters.services.open_ai_adapter import OpenAILLMInvocationParams
from redis.asyncio import Redis

from images.agent.tests.conftest import engines, running_agent, silence
from images.agent.tests.engines import Engines
from images.agent.tests.test_conversation import said, speak
from images.conftest import store, store_server
from tests.engines.callers import HITS, QUERIES, Growth
from tests.engines.conftest import Bench
from tests.engines.replicas import Service
from tests.router.conftest import LOOPBACK, Cluster, Front, haproxy
from voice_agent.chat import AudioChatLLMService
from voice_blueprint.engines.launch.router import Backend, BackendService, Router
from voice_blueprint.engines.launch.services import create_aggregated_processes
from voice_blueprint.file.loading import load
from voice_blueprint.file.model.azure import AggregatedService
from voice_sandbox.engines.processes import ROOT
from voice_sandbox.loopback import find_free_port

__all__ = ["engines", "haproxy", "store", "store_server"]

TURNS = 3
BLOCK_TOKENS = 128
"""Block size of vLLM's KV cache on a CPU."""
FORM = "<transcript>[a-z]{8}\\?</transcript> <response>[A-Z][a-z]{8}\\.</response>"


@pytest.fixture
def cluster(bench: Bench) -> Iterator[Cluster]:
    cluster = Cluster(bench.folder, find_free_port(), find_free_port())
    yield cluster
    cluster.end()


@pytest.fixture
def service(bench: Bench, cluster: Cluster) -> Iterator[Service]:
    azure = load(ROOT / "deployments/hearing.yaml").azure_section
    assert azure
    voxtral = next(each for each in azure.services if isinstance(each, AggregatedService))
    # Only the prefix cache of the engine; `test_peers.py` adds LMCache.
    launch = create_aggregated_processes(azure, voxtral.model_copy(update={"lmcache": None}))
    service = Service(bench, launch.engine, cluster)
    yield service
    service.end()


@pytest.fixture
def front(service: Service, haproxy: Path) -> Iterator[Front]:
    service.start(1)
    cluster = service.cluster
    backend = Backend(service.model, [BackendService("voxtral", f"{service.model}.test", cluster.engine_port, 8)])
    launcher = Router(find_free_port(), [backend], 30, 2, (f"{LOOPBACK}:{cluster.dns_port}",))
    front = Front(haproxy, launcher, cluster.folder / "front")
    front.start()
    front.finds(service.model, 1)
    yield front
    front.end()


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[list[dict[str, Any]]]:
    """Record the messages of each request to the engine, and add the grammar."""
    sent: list[list[dict[str, Any]]] = []
    built = AudioChatLLMService.build_chat_completion_params

    def with_form(chat: AudioChatLLMService, params: OpenAILLMInvocationParams) -> dict[str, Any]:
        request = built(chat, params)
        sent.append(request["messages"])
        return request | {"extra_body": {"structured_outputs": {"regex": FORM}}}

    monkeypatch.setattr(AudioChatLLMService, "build_chat_completion_params", with_form)
    return sent


async def test_earlier_questions_are_cache_hits(
    engines: Engines, store: Redis, front: Front, service: Service, requests: list[list[dict[str, Any]]]
) -> None:
    growth = Growth(service.replicas[0].engine)
    turns: list[tuple[int, int]] = []
    chat: dict[str, Any] = {"chat_url": f"{front.url}/{service.model}/v1", "chat_model": service.model, "chat_key": ""}
    async with running_agent(engines, store, listening="audio", **chat) as place, place.call() as caller:
        conversation = caller.messages[0]["id"]
        for turn in range(TURNS):
            await speak(caller)
            while len(await said(store, conversation)) < 2 * (turn + 1):
                await caller.send(silence(0.02))
            grown = growth.take()
            turns.append((grown[QUERIES], grown[HITS]))
    print("\n| Turn | Tokens of the request | Cached by the engine |\n|---|---|---|")
    for number, (tokens, hits) in enumerate(turns, 1):
        print(f"| {number} | {tokens} | {hits} ({hits / tokens:.0%}) |")
    assert [sum(_is_audio(each) for each in messages) for messages in requests] == [1, 2, 3]
    assert turns[0][1] == 0
    # Each request has the previous one as a prefix, whose complete blocks are cache hits.
    for (before, _), (_, hits) in itertools.pairwise(turns):
        assert hits >= before // BLOCK_TOKENS * BLOCK_TOKENS > 0
    assert all(text for _, text in await said(store, conversation))


def _is_audio(message: dict[str, Any]) -> bool:
    return isinstance(message["content"], list) and any(part["type"] == "input_audio" for part in message["content"])
