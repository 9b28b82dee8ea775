"""Requests in progress on lost pods, low load, and callers that disconnect."""

import signal
import threading
import time

import httpx2
import pytest

from tests.router.conftest import Callers, Cluster, Front, Pod, wait_until
from tests.router.test_faults import SERVICE, engine_for, send_request
from voice_blueprint.engines.launch.router import BUFFER_SIZE_MIB, DNS_CACHE_TTL_S, DNS_LOOKUP_INTERVAL_S
from voice_constructs.azure.kubernetes.pods import ENGINE_PRE_STOP_S

CONVERSATION = "one"
ANSWER_S = 3.0
KIB = 1024


class PendingRequest:
    """One request in a separate thread, with its result."""

    def __init__(self, front: Front, padding: int) -> None:
        self._since = time.monotonic()
        self.answer: httpx2.Response | None = None
        self.after_s = 0.0
        self._thread = threading.Thread(target=self._ask, args=(front, padding))
        self._thread.start()

    def _ask(self, front: Front, padding: int) -> None:
        self.answer = send_request(front, CONVERSATION, seconds=ANSWER_S, padding="x" * padding)
        self.after_s = time.monotonic() - self._since

    def wait(self) -> httpx2.Response:
        self._thread.join()
        assert self.answer is not None
        return self.answer


def pod_for_conversation(cluster: Cluster, front: Front) -> Pod:
    """Return the pod of the conversation."""
    name = engine_for(front, CONVERSATION)
    return next(pod for pod in cluster.pods if pod.name == name)


def busy(front: Front) -> float:
    """Return the number of requests in progress, from the router's metrics."""
    start = f'haproxy_server_current_sessions{{proxy="{SERVICE}",'
    lines = [line for line in httpx2.get(f"{front.url}/metrics").text.splitlines() if line.startswith(start)]
    assert lines
    return sum(float(line.rpartition(" ")[2]) for line in lines)


@pytest.mark.parametrize("padding", [1 * KIB, 40 * KIB, (BUFFER_SIZE_MIB * KIB - 4) * KIB])
def test_a_request_on_a_killed_engine_is_answered_by_another(cluster: Cluster, front: Front, padding: int) -> None:
    cluster.add(SERVICE, 3)
    front.finds(SERVICE, 3)
    lost = pod_for_conversation(cluster, front)
    asked = PendingRequest(front, padding)
    wait_until("the request is at its engine", lambda: busy(front) > 0)
    lost.send(signal.SIGKILL)
    answer = asked.wait()
    print(f"killed with {padding / KIB:.0f} KiB in progress: {answer.status_code} after {asked.after_s:.1f} s")
    assert answer.is_success
    assert answer.json()["engine"] != lost.name


def test_a_request_on_a_hung_engine_is_answered_once_the_engine_is_killed(cluster: Cluster, front: Front) -> None:
    """The liveness probe kills a hanging engine; until then its callers wait, and no request is lost."""
    cluster.add(SERVICE, 3)
    front.finds(SERVICE, 3)
    hung = pod_for_conversation(cluster, front)
    hung.send(signal.SIGSTOP)
    asked = PendingRequest(front, KIB)
    left_s = front.finds(SERVICE, 2)
    assert asked.answer is None
    hung.send(signal.SIGKILL)
    answer = asked.wait()
    print(f"hung: left after {left_s:.1f} s, its caller answered after {asked.after_s:.1f} s: {answer.status_code}")
    assert answer.is_success
    assert answer.json()["engine"] != hung.name


@pytest.mark.parametrize("conversations", [4, 16])
def test_conversations_keep_their_pods_under_other_load(cluster: Cluster, front: Front, conversations: int) -> None:
    """With a low limit on the load of a pod, a few concurrent conversations would be moved away from their KV cache."""
    cluster.add(SERVICE, 3)
    front.finds(SERVICE, 3)
    with Callers(f"{front.url}/{SERVICE}", conversations, 0.2) as callers:
        wait_until("callers ask", lambda: callers.request_count() > conversations * 8)
    moved = sum(len(pods) > 1 for pods in callers.engines.values())
    print(f"{moved} of {conversations} conversations changed pods while nothing happened")
    assert moved <= conversations // 8
    if conversations > 8:  # in one of 27 cases all four hash to the same pod
        assert len({pod for pods in callers.engines.values() for pod in pods}) > 1


def test_an_engine_stops_generating_when_the_caller_disconnects(cluster: Cluster, front: Front) -> None:
    cluster.add(SERVICE)
    front.finds(SERVICE, 1)
    with pytest.raises(httpx2.ReadTimeout):
        httpx2.post(f"{front.url}/{SERVICE}/v1/chat/completions", json={"seconds": 30}, timeout=1)
    left_s = wait_until("the engine has no request", lambda: busy(front) == 0, within_s=10)
    print(f"an engine's request ended {left_s:.1f} s after its caller hung up")


def test_an_update_loses_no_request_while_dns_is_cached(cluster: Cluster, front: Front) -> None:
    """AKS's CoreDNS returns a deleted pod for ``DNS_CACHE_TTL_S``: the delay before SIGTERM is of a rendered pod."""
    cached_s, rest_s = 3.0, ENGINE_PRE_STOP_S - DNS_CACHE_TTL_S
    assert rest_s > 3 * DNS_LOOKUP_INTERVAL_S
    (old,) = cluster.add(SERVICE)
    front.finds(SERVICE, 1)
    with Callers(f"{front.url}/{SERVICE}", 8, 0.3) as callers:
        wait_until("callers ask", lambda: callers.request_count() > 8)
        cluster.add(SERVICE, 2)
        time.sleep(cached_s)
        cluster.withdraw(old)
        time.sleep(rest_s)
        old.send(signal.SIGTERM)
        assert old.process
        assert old.process.wait(60) == 0
    print(f"an update with a cache of DNS: callers saw {dict(callers.seen)}, slowest {callers.slowest_s:.1f} s")
    assert set(callers.seen) == {"200"}
