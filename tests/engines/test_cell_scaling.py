"""Queries of scaling, alerts and dashboards, evaluated on metrics of real engines and caches under a small load."""

import itertools
import math
import re
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.blueprint.documents import load_text
from tests.blueprint.launch.samples import azure_service
from tests.contract import azure_alert_rules
from tests.engines.callers import Caller
from tests.engines.cell import MODEL, cell_graph
from tests.engines.prometheus import prometheus, published_series, query, scrape_jobs
from tests.nonempty import nonempty
from tests.stacks.azure.manifests import DIGESTS, manifests
from tests.stacks.azure.recorded import cluster, edit_deployment
from voice_blueprint.azure.contract import DECODE_HTTP, ENGINE_HTTP
from voice_blueprint.azure.metrics import SERVICE_METRIC_LABEL
from voice_blueprint.file.model.azure import TtsService
from voice_blueprint.observability.azure.alerts import build_alerts
from voice_sandbox.engines.pod import Pod
from voice_sandbox.engines.processes import EngineProcess, run_processes

UNAVAILABLE = {
    "kube_": "kube-state-metrics publishes it: there is no cluster here",
    "DCGM_": "the DCGM exporter publishes it: there is no GPU here",
    "container_": "kubelets publish it: there is none here",
    "vllm_omni:": "vLLM-Omni publishes it, which has no build for CPUs: its table of metrics judges it",
    "voice": "our own programs and recording rules publish it: their tests have it",
}
"""Metrics that no process of these tests can publish, by prefix."""
CALLERS = 12
LIMIT_S = 240.0
"""Timeout until metrics show the start and the end of the load, which takes seconds on idle cores."""
EXCESS_LOAD = re.compile(r"clamp_min\(.* - ([\d.]+), 0\)")
"""Query for the load of a service that exceeds the capacity of its earlier pools."""


@cache
def scaling_queries() -> tuple[tuple[str, str], ...]:
    """Return KEDA's queries, each with the Deployment that it scales."""
    found = manifests(cell_graph(), "ScaledObject")
    return tuple((each["metadata"]["name"], t["metadata"]["query"]) for each in found for t in each["spec"]["triggers"])


def is_speech_service(expression: str) -> bool:
    """Return True if an expression concerns the speech service."""
    return f'{SERVICE_METRIC_LABEL}="{azure_service(TtsService).name}"' in expression


@pytest.fixture(scope="module")
def server(cell: Pod, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    ports = {**cell.ports, ENGINE_HTTP.number: cell.ports[DECODE_HTTP.number]}
    jobs = list(scrape_jobs(cell_graph(), ports, without=azure_service(TtsService).name))
    # Prefill, decode and two caches of the cell; voxtral, and qwen on two pools.
    assert len(jobs) == 4 + 3
    with run_processes(prometheus(tmp_path_factory.mktemp("prometheus"), jobs)) as (one,):
        yield one


@pytest.fixture(scope="module")
def query_values(cell: Pod, server: EngineProcess) -> dict[str, tuple[float, float, float]]:
    """Return each scaling query's value before, at most during, and after a load of long prompts and answers."""
    queries = [each for _, each in scaling_queries() if not is_speech_service(each)]
    caller = Caller(cell.get_url(ENGINE_HTTP.number), MODEL)
    before = wait_for(server, queries, lambda values: len(values) == len(queries))
    highest, over, numbers = dict(before), threading.Event(), itertools.count()

    def ask() -> None:
        while not over.is_set():
            caller.complete(f"{next(numbers)} " + "scale by what engines publish " * 250, 48)

    threads = [threading.Thread(target=ask) for _ in range(CALLERS)]
    for each in threads:
        each.start()

    def has_risen(values: dict[str, float]) -> bool:
        highest.update({name: max(value, highest[name]) for name, value in values.items()})
        return all(highest[name] > before[name] for name in queries if not EXCESS_LOAD.search(name))

    try:
        wait_for(server, queries, has_risen)
    finally:
        over.set()
        for each in threads:
            each.join()
    after = wait_for(server, queries, lambda values: all(values[name] <= before[name] for name in queries))
    return {name: (before[name], highest[name], after[name]) for name in queries}


def wait_for(server: EngineProcess, queries: list[str], holds: Callable[[dict[str, float]], bool]) -> dict[str, float]:
    """Query until the results satisfy a condition or a timeout expires, and return the last results."""
    limit = time.monotonic() + LIMIT_S
    while True:
        answers = {name: query(server, name) for name in queries}
        values = {name: found[0] for name, found in answers.items() if len(found) == 1}
        if (len(values) == len(queries) and holds(values)) or time.monotonic() > limit:
            return values
        time.sleep(0.3)


def test_kedas_queries_follow_the_load(query_values: dict[str, tuple[float, float, float]]) -> None:
    for name, (before, highest, after) in query_values.items():
        print(f"{before:g} -> {highest:.3g} -> {after:g}  {name}")
    for name, (before, highest, after) in nonempty(query_values.items()):
        assert before == after == 0, name
        assert (highest > 0) != bool(EXCESS_LOAD.search(name)), name


def test_a_later_pool_scales_on_the_load_that_exceeds_earlier_pools(server: EngineProcess) -> None:
    """The query of the later pool is 0 under this load, and positive for a smaller first pool."""
    (later,) = (each for _, each in scaling_queries() if EXCESS_LOAD.search(each))
    assert query(server, later) == [0]
    carried = EXCESS_LOAD.search(later)
    assert carried
    assert query(server, later.replace(f"- {carried[1]}", "- -5")) == [5]


def test_metrics_of_alerts_and_dashboards_are_published(
    server: EngineProcess, query_values: dict[str, tuple[float, float, float]], tmp_path: Path
) -> None:
    """Each expression returns numbers; those that need another publisher are printed with the reason."""
    assert query_values
    text = edit_deployment({"images": DIGESTS})
    read = [(alert.name, alert.query) for alert in build_alerts(load_text(text, tmp_path))]
    read += list(azure_alert_rules.graph_expressions(cluster(text)))
    there, silent, judged = published_series(server), [], 0
    for name, expression in read:
        reason = unavailable_because(expression, there)
        if reason:
            print(f"not here: {name}: {reason}")
            continue
        judged += 1
        values = query(server, expression)
        print(f"{name}: {values}")
        if not values or any(math.isnan(value) for value in values):
            silent.append((name, expression, values))
    print(f"{judged} of {len(read)} expressions of alerts and dashboards were evaluated")
    assert silent == []
    assert judged > 10


def unavailable_because(expression: str, there: set[str]) -> str:
    """Return the reason why the metrics of an expression cannot be published here; empty if they are."""
    if is_speech_service(expression):
        return UNAVAILABLE["vllm_omni:"]
    for metric in sorted(azure_alert_rules.metrics(expression) - there):
        for start, reason in UNAVAILABLE.items():
            if metric.startswith(start):
                return f"{metric}: {reason}"
    return ""
