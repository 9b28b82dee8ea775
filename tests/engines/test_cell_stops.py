"""Effects on callers when a container of a cell is killed, and while its pod stops. The last tests of the pod."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import httpx2
import pytest

from tests.engines.callers import Caller
from tests.engines.cell import MODEL
from voice_blueprint.azure.contract import DECODE_HTTP, ENGINE_HTTP, PD_ROUTER_HTTP, PREFILL_HTTP
from voice_sandbox.engines.pod import Pod
from voice_sandbox.engines.processes import EngineProcess

OK = 200
SERVED_AGAIN_WITHIN_S = 60.0
"""Maximum time from the readiness of a restarted container until requests succeed: the router checks every 5 s."""
ANSWER_TOKENS = 1200
"""Tokens to generate, so that a request stays in flight for about ten seconds on two idle cores."""
ALLOWED_STATUSES = {
    "lmcache": {OK},
    "lmcache-decode": {OK},
    "pd-router": {0, OK, 502},
    "prefill": {OK, 500, 503},
    "decode": {0, OK, 500, 503},
}
"""Statuses that callers may receive while a container of the cell is missing; 0 is a broken connection."""


@dataclass
class Observations:
    """Results of callers: time, status and duration of each request."""

    answers: list[tuple[float, int, float]] = field(default_factory=list)

    def statuses(self) -> set[int]:
        return {status for _, status, _ in self.answers}

    def longest_s(self) -> float:
        return max(took for _, _, took in self.answers)

    def first_good(self, since: float) -> float | None:
        """Return the time of the first successful response after a time."""
        good = [asked + took for asked, status, took in self.answers if status == OK and asked >= since]
        return min(good, default=None)


@contextmanager
def callers(cell: Pod) -> Iterator[Observations]:
    """Send a request every two seconds without waiting for the previous one."""
    caller, seen, over = Caller(cell.get_url(ENGINE_HTTP.number), MODEL), Observations(), threading.Event()

    def ask() -> None:
        asked = time.monotonic()
        try:
            status = caller.complete(f"{asked} " + "who is there " * 50, 2, 120).status_code
        except httpx2.TransportError:
            status = 0
        seen.answers.append((asked, status, time.monotonic() - asked))

    def keep_asking() -> None:
        while not over.is_set():
            threads.submit(ask)
            over.wait(2)

    with ThreadPoolExecutor(32) as threads:
        asking = threads.submit(keep_asking)
        try:
            yield seen
        finally:
            over.set()
            asking.result()


def wait_until(description: str, holds: Callable[[], object], within_s: float = 300.0) -> None:
    limit = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < limit, f"{description}: not within {within_s:.0f} s"
        time.sleep(0.1)


ROWS: list[str] = []


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    """Print the results of every container in one table."""
    yield
    print("\n| Killed | Callers saw | Longest wait, s | Restarted part ready after, s | Served again after that, s |")
    print("|---|---|---|---|---|")
    print("\n".join(ROWS))


@pytest.mark.parametrize("victim", ALLOWED_STATUSES)
def test_a_killed_container_is_restarted_and_the_cell_serves_again(cell: Pod, victim: str) -> None:
    with callers(cell) as seen:
        wait_until("a first answer", lambda: seen.first_good(0))
        cell.containers[victim].kill()
        killed = time.monotonic()
        cell.containers[victim].start()  # the kubelet waits before the second restart, and not before the first
        cell.wait_for_probe(victim, "readinessProbe" if victim == "pd-router" else "startupProbe")
        ready = time.monotonic()
        wait_until("an answer after the restart", lambda: seen.first_good(ready))
    again = (seen.first_good(ready) or 0) - ready
    shown = ", ".join(f"{seen_of} x {status or 'connection ended'}" for status, seen_of in status_counts(seen))
    ROWS.append(f"| {victim} | {shown} | {seen.longest_s():.1f} | {ready - killed:.1f} | {again:.1f} |")
    assert seen.statuses() <= ALLOWED_STATUSES[victim], seen.answers
    others = {name: each.get_exit_code() for name, each in cell.containers.items()}
    assert set(others.values()) == {None}, f"ended with it: {others}"
    assert again < SERVED_AGAIN_WITHIN_S


def test_the_decode_engine_computes_prompts_without_a_prefill_engine(cell: Pod) -> None:
    """If the prefill engine is killed between two calls of the router, responses are correct, and decode survives."""
    prompt = "this cache is lost with its engine " * 40
    decode = Caller(cell.get_url(DECODE_HTTP.number), MODEL)
    expected = replace(decode, salt="alone").complete(prompt).raise_for_status().json()["choices"][0]["text"]
    parameters = Caller(cell.get_url(PREFILL_HTTP.number), MODEL).prefill(prompt)
    cell.containers["prefill"].kill()
    answer = decode.decode(prompt, parameters)
    cell.containers["prefill"].start()
    assert cell.containers["decode"].get_exit_code() is None
    assert answer.raise_for_status().json()["choices"][0]["text"] == expected
    cell.wait_for_probe("prefill", "startupProbe")


def status_counts(seen: Observations) -> list[tuple[int, int]]:
    return [(each, sum(status == each for _, status, _ in seen.answers)) for each in sorted(seen.statuses())]


def test_a_cell_without_prefill_is_not_healthy(cell: Pod) -> None:
    """The cluster's router checks the health of the front, since the decode engine alone would still be healthy."""
    front = EngineProcess(
        "front", cell.containers["front"].process, cell.containers["front"].folder, cell.get_url(ENGINE_HTTP.number)
    )
    router = EngineProcess("router", front.process, front.folder, cell.get_url(PD_ROUTER_HTTP.number))
    # An engine that an earlier test has restarted is available once the router has checked it.
    wait_until("the cell is healthy", lambda: front.fetch_health_status() == OK)
    cell.containers["prefill"].suspend_processes()
    try:
        wait_until("the router notices", lambda: router.fetch_health_status() != OK)
        assert front.fetch_health_status() == 503
    finally:
        cell.containers["prefill"].resume_processes()
    wait_until("the router notices", lambda: front.fetch_health_status() == OK)


def test_requests_in_flight_complete_while_the_pod_stops(cell: Pod) -> None:
    """The last test of the pod, which is stopped."""
    caller, decode = Caller(cell.get_url(ENGINE_HTTP.number), MODEL), cell.containers["decode"]
    with ThreadPoolExecutor() as threads:
        asked = [threads.submit(caller.complete, f"{number} stops " * 40, ANSWER_TOKENS) for number in range(4)]
        # Wait until all have started: the draining decode engine would reject a request that is still in prefill. In a
        # cluster the router stops sending earlier than prefill takes.
        wait_until("all are decoded", lambda: decode.fetch_metrics()["vllm:num_requests_running"] >= len(asked))
        ended = threads.submit(cell.terminate)
        late = Observations()
        while not all(each.done() for each in asked):
            began = time.monotonic()
            try:
                status = caller.complete("late", 1, 60).status_code
            except httpx2.TransportError:
                status = 0
            late.answers.append((began, status, time.monotonic() - began))
            time.sleep(0.2)
    answers = [each.result() for each in asked]
    print(f"after SIGTERM: {status_counts(late)} for new requests")
    for name, (code, seconds) in ended.result().items():
        print(f"{name} ended with {code} after {seconds:.1f} s")
    assert [each.status_code for each in answers] == [OK] * len(asked)
    assert {each.json()["usage"]["completion_tokens"] for each in answers} == {ANSWER_TOKENS}
    assert OK not in late.statuses()
    codes = {name: code for name, (code, _) in ended.result().items()}
    assert codes["prefill"] == codes["decode"] == 0
    last_engine = max(ended.result()[name][1] for name in ("prefill", "decode"))
    assert all(ended.result()[name][1] >= last_engine for name in ("front", "pd-router", "lmcache", "lmcache-decode"))
