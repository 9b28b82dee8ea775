"""Effects on callers when pods disappear, hang, or are killed or replaced, with the real router."""

import signal
import time

import httpx2
import pytest

from tests.router.conftest import Callers, Cluster, Front, black_hole, wait_until

CONVERSATIONS = 12
SERVICE = "qwen"


def send_request(front: Front, conversation: str = "one", **more: object) -> httpx2.Response:
    return httpx2.post(
        f"{front.url}/{SERVICE}/v1/chat/completions",
        json={"seconds": 0, **more},
        headers={"x-session-id": conversation},
        timeout=60,
    )


def engine_for(front: Front, conversation: str) -> str:
    return str(send_request(front, conversation).raise_for_status().json()["engine"])


def test_a_lost_pod_only_moves_its_own_conversations(cluster: Cluster, front: Front) -> None:
    pods = cluster.add(SERVICE, 3)
    front.finds(SERVICE, 3)
    names = [f"conversation {number}" for number in range(60)]
    before = {name: engine_for(front, name) for name in names}
    assert before == {name: engine_for(front, name) for name in names}
    assert set(before.values()) == {pod.name for pod in pods}
    cluster.withdraw(pods[0])
    found_s = front.finds(SERVICE, 2)
    after = {name: engine_for(front, name) for name in names}
    moved = [name for name in names if before[name] != after[name]]
    print(f"a withdrawn pod was left after {found_s:.1f} s; {len(moved)} of {len(names)} conversations moved")
    assert {before[name] for name in moved} == {pods[0].name}


def test_every_replica_of_the_router_chooses_the_same_pod(cluster: Cluster, front: Front) -> None:
    """HAProxy's server slots have another order if pods start one by one, so hashing uses addresses."""
    for count in range(1, 4):
        cluster.add(SERVICE)
        front.finds(SERVICE, count)
    second = Front(front.program, front.launcher, front.folder / "second")
    second.launcher = type(front.launcher)(
        front.launcher.port + 1, front.launcher.backends, 30, 2, front.launcher.nameservers
    )
    second.start()
    try:
        second.finds(SERVICE, 3)
        names = [f"conversation {number}" for number in range(40)]
        assert [engine_for(front, name) for name in names] == [engine_for(second, name) for name in names]
    finally:
        second.end()


def test_no_response_is_lost_when_a_pod_is_killed(cluster: Cluster, front: Front) -> None:
    pods = cluster.add(SERVICE, 3)
    front.finds(SERVICE, 3)
    with Callers(f"{front.url}/{SERVICE}", CONVERSATIONS, 0.2) as callers:
        wait_until("callers ask", lambda: callers.request_count() > CONVERSATIONS)
        pods[0].send(signal.SIGKILL)
        left_s = front.finds(SERVICE, 2)
        before = callers.request_count()
        wait_until("callers ask", lambda: callers.request_count() > before + CONVERSATIONS)
    print(f"killed: left after {left_s:.1f} s; callers saw {dict(callers.seen)}, slowest {callers.slowest_s:.1f} s")
    # uvicorn writes the head and the body of a response one after the other. A kill between them truncates the response
    # that is being written, and no router can send that request again.
    assert callers.seen.pop("RemoteProtocolError", 0) <= 1
    assert set(callers.seen) == {"200"}


def test_no_response_is_lost_when_a_node_fails_before_dns_is_updated(cluster: Cluster, front: Front) -> None:
    """The deletion event of the pod is lost, and its address drops packets."""
    pods = cluster.add(SERVICE, 3)
    front.finds(SERVICE, 3)
    with Callers(f"{front.url}/{SERVICE}", CONVERSATIONS) as callers:
        wait_until("callers ask", lambda: callers.request_count() > CONVERSATIONS)
        pods[0].end()
        with black_hole(pods[0].address, pods[0].port):
            left_s = front.finds(SERVICE, 2)
            before = callers.request_count()
            wait_until("callers ask", lambda: callers.request_count() > before + CONVERSATIONS)
            assert pods[0] in cluster.published[SERVICE]
    print(f"vanished: left after {left_s:.1f} s; callers saw {dict(callers.seen)}, slowest {callers.slowest_s:.1f} s")
    assert set(callers.seen) == {"200"}


def test_a_hanging_pod_gets_no_new_requests(cluster: Cluster, front: Front) -> None:
    pods = cluster.add(SERVICE, 2)
    front.finds(SERVICE, 2)
    pods[0].send(signal.SIGSTOP)
    left_s = front.finds(SERVICE, 1)
    print(f"hung: left after {left_s:.1f} s")
    assert {engine_for(front, f"conversation {number}") for number in range(20)} == {pods[1].name}
    pods[0].send(signal.SIGCONT)
    front.finds(SERVICE, 2)


def test_a_rolling_update_loses_nothing(cluster: Cluster, front: Front) -> None:
    """Like in Kubernetes, each pod is removed from DNS, continues for preStop, and then receives SIGTERM."""
    old = cluster.add(SERVICE, 3)
    front.finds(SERVICE, 3)
    with Callers(f"{front.url}/{SERVICE}", CONVERSATIONS, 0.3) as callers:
        for pod in old:
            cluster.add(SERVICE)
            cluster.withdraw(pod)
            time.sleep(4)  # preStop: here DNS is cached for up to 1 s, and the router queries it each second
            pod.send(signal.SIGTERM)
            assert pod.process
            assert pod.process.wait(60) == 0
        front.finds(SERVICE, 3)
    print(f"rolling update of 3 pods: callers saw {dict(callers.seen)}, slowest {callers.slowest_s:.1f} s")
    assert set(callers.seen) == {"200"}


def test_without_prestop_hook_an_update_loses_requests(cluster: Cluster, front: Front) -> None:
    """Control of the test above: engines answer 500 to requests after SIGTERM."""
    pods = cluster.add(SERVICE, 2)
    front.finds(SERVICE, 2)
    with Callers(f"{front.url}/{SERVICE}", CONVERSATIONS, 0.3) as callers:
        wait_until("callers ask", lambda: callers.request_count() > CONVERSATIONS)
        pods[0].send(signal.SIGTERM)
        wait_until("a request is lost", lambda: callers.seen["500"] > 0)


def test_a_service_without_pods_is_reported_and_a_dns_failure_changes_nothing(cluster: Cluster, front: Front) -> None:
    refused = send_request(front)
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
    assert "no engine of this model is ready" in refused.json()["error"]["message"]
    cluster.add(SERVICE, 2)
    front.finds(SERVICE, 2)
    cluster.dns.send_signal(signal.SIGSTOP)
    time.sleep(5)
    assert front.up(SERVICE) == 2
    assert send_request(front).is_success
    cluster.dns.send_signal(signal.SIGCONT)


def test_a_stopping_router_completes_requests_in_flight(cluster: Cluster, front: Front) -> None:
    cluster.add(SERVICE)
    front.finds(SERVICE, 1)
    assert front.process
    with Callers(f"{front.url}/{SERVICE}", 1, 3.0) as callers:
        time.sleep(1)
        front.process.send_signal(signal.SIGUSR1)
        assert front.process.wait(60) == 0
        assert callers.seen["200"] == 1


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/other/v1/chat/completions", "/qwenx/v1/models"])
def test_an_unknown_path_returns_the_available_paths(cluster: Cluster, front: Front, path: str) -> None:
    cluster.add(SERVICE)
    answer = httpx2.get(front.url + path)
    assert answer.status_code == 404
    assert "the models are at /qwen/v1, /speech/v1" in answer.json()["error"]["message"]
