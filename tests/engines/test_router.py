"""The real router with real engines: effects on callers when an engine hangs, disappears or is replaced.

Three replicas of the text model run with their rendered flags, each at a separate address. For each replica a thread
simulates the kubelet: DNS contains the replica while its rendered readiness probe succeeds.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.conftest import Bench, chat_service
from tests.engines.replicas import PATIENCE_S, Service
from tests.router.conftest import LOOPBACK, Callers, Cluster, Front, haproxy, wait_until
from voice_blueprint.engines.launch.router import REMOVAL_DELAY_S, Backend, BackendService, Router
from voice_blueprint.engines.launch.services import create_chat_launcher
from voice_blueprint.file.model.azure import Azure
from voice_sandbox.loopback import find_free_port

__all__ = ["haproxy"]

REPLICAS = 3
CONVERSATIONS = 6
PAUSE_S = 0.5
"""Pause of a conversation between two requests: on two cores, starting an engine needs most of them."""


@pytest.fixture(scope="module")
def cluster(bench: Bench) -> Iterator[Cluster]:
    cluster = Cluster(bench.folder, find_free_port(), find_free_port())
    yield cluster
    cluster.end()


@pytest.fixture(scope="module")
def service(azure: Azure, bench: Bench, cluster: Cluster) -> Iterator[Service]:
    chat = chat_service(azure)
    service = Service(bench, create_chat_launcher(azure, chat, chat.pools[0]), cluster)
    yield service
    service.end()


@pytest.fixture(scope="module")
def front(service: Service, haproxy: Path) -> Iterator[Front]:
    service.start(REPLICAS)
    cluster = service.cluster
    backend = Backend(service.model, [BackendService("qwen", f"{service.model}.test", cluster.engine_port, 8)])
    launcher = Router(find_free_port(), [backend], 30, 2, (f"{LOOPBACK}:{cluster.dns_port}",))
    front = Front(haproxy, launcher, cluster.folder / "front")
    front.start()
    front.finds(service.model, REPLICAS)
    yield front
    front.end()


def callers(front: Front, service: Service) -> Callers:
    request = {
        "model": service.model,
        "messages": [{"role": "user", "content": "hello world"}],
        "max_tokens": 8,
        "ignore_eos": True,
    }
    url = f"{front.url}/{service.model}"
    return Callers(url, CONVERSATIONS, request=request, timeout_s=PATIENCE_S, pause_s=PAUSE_S)


def wait_for_answers(asking: Callers, more: int) -> None:
    before = asking.request_count()
    wait_until(f"{more} answers", lambda: asking.request_count() >= before + more, PATIENCE_S)


def test_callers_survive_a_rolling_update(front: Front, service: Service) -> None:
    with callers(front, service) as asking:
        for old in list(service.replicas):
            service.start(1)
            assert service.stop(old) == 0
        wait_for_answers(asking, CONVERSATIONS)
    print(
        f"a rolling update of {REPLICAS} engines: callers saw {dict(asking.seen)}, slowest {asking.slowest_s:.0f} s; "
        f"{asking.request_count()} requests"
    )
    assert set(asking.seen) == {"200"}


def test_callers_survive_an_engine_that_hangs(front: Front, service: Service) -> None:
    """Its HTTP server still responds, but its probe fails, and the kubelet kills it after the liveness timeout."""
    hung = service.replicas[0]
    with callers(front, service) as asking:
        wait_for_answers(asking, CONVERSATIONS)
        since = time.monotonic()
        hung.engine.suspend_engine_cores()
        assert hung.engine.fetch_health_status() == 200
        wait_until("it leaves", lambda: front.up(service.model) == REPLICAS - 1, PATIENCE_S)
        left_s = time.monotonic() - since
        wait_for_answers(asking, 1)
        service.replicas.remove(hung)
        hung.engine.kill()
        hung.probe.stop()
        wait_for_answers(asking, 2 * CONVERSATIONS)
    print(
        f"an engine that hangs: left after {left_s:.0f} s (cached DNS: up to {REMOVAL_DELAY_S} s more); callers saw "
        f"{dict(asking.seen)}, slowest {asking.slowest_s:.0f} s"
    )
    assert set(asking.seen) == {"200"}


def test_callers_survive_an_engine_killed_before_a_health_check(front: Front, service: Service) -> None:
    """The deletion event of the pod is lost: DNS keeps its address."""
    before = front.up(service.model)
    dead = service.replicas[0]
    with callers(front, service) as asking:
        wait_for_answers(asking, CONVERSATIONS)
        service.misses_deletions = True
        dead.engine.kill()
        wait_until("it leaves", lambda: front.up(service.model) == before - 1, PATIENCE_S)
        wait_for_answers(asking, 2 * CONVERSATIONS)
        assert dead in service.cluster.published[service.model]
    print(f"an engine that dies unseen: callers saw {dict(asking.seen)}, slowest {asking.slowest_s:.0f} s")
    assert set(asking.seen) == {"200"}
    service.misses_deletions = False
    service.replicas.remove(dead)
    dead.probe.stop()
