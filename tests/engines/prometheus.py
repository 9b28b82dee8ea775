"""Debian's Prometheus scrapes processes of a pod like Azure's agent, with the emitted pod monitors."""

import json
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.stacks.azure.manifests import engine_pods, manifests
from voice_blueprint.azure.contract import COMPONENT_LABEL, SERVICE_LABEL, Component
from voice_sandbox.azure.graph import Graph
from voice_sandbox.engines.processes import LOOPBACK, EngineProcess
from voice_sandbox.engines.substitutions import RenderedProcess
from voice_sandbox.loopback import find_free_port

SCRAPE_S = 1
"""Scrape interval of the tests; the rendered one is 15 s."""


def scrape_jobs(graph: Graph, ports: Mapping[int, int], without: str) -> Iterator[dict[str, Any]]:
    """Yield a job for each endpoint of the engines' pod monitor and each pod with its port.

    Pods have the labels of Kubernetes' service discovery, and are relabelled by the rules of the monitor.

    Args:
        ports: Local port for each rendered port. Only the cell's engines run here: its decode engine replaces
            those of other pods, under their labels.
        without: Service whose engine publishes different metrics.
    """
    monitors = manifests(graph, "PodMonitor")
    (monitor,) = (
        each for each in monitors if each["spec"]["selector"]["matchLabels"] == {COMPONENT_LABEL: Component.ENGINE}
    )
    for endpoint in monitor["spec"]["podMetricsEndpoints"]:
        for pod in engine_pods(graph):
            declared = {port["name"]: port["containerPort"] for each in pod.running for port in each["ports"]}
            if endpoint["port"] in declared and pod.labels[SERVICE_LABEL] != without:
                yield {
                    "job_name": f"{pod.name}/{endpoint['port']}",
                    "metrics_path": endpoint["path"],
                    "static_configs": [
                        {
                            "targets": [f"{LOOPBACK}:{ports[declared[endpoint['port']]]}"],
                            "labels": {_meta(name): value for name, value in pod.labels.items()},
                        }
                    ],
                    "relabel_configs": [_relabelling(each) for each in endpoint.get("relabelings", ())],
                }


def prometheus(folder: Path, jobs: list[dict[str, Any]]) -> EngineProcess:
    """Return a server without starting it."""
    port, config = find_free_port(), folder / "prometheus.yaml"
    text = yaml.safe_dump(
        {"global": {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": "1s"}, "scrape_configs": jobs}
    )
    argv = [
        "prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'series'}",
        f"--web.listen-address={LOOPBACK}:{port}", "--log.level=warn",
    ]  # fmt: skip
    return EngineProcess(
        "prometheus", RenderedProcess(argv, {}, {config: text}, []), folder, f"http://{LOOPBACK}:{port}", "/-/ready"
    )


def query(server: EngineProcess, promql: str) -> list[float]:
    """Return the current value of each series of an expression."""
    found = _ask(server, f"query?{urllib.parse.urlencode({'query': promql})}")
    return [float(each["value"][1]) for each in found["result"]]


def published_series(server: EngineProcess) -> set[str]:
    """Return the names of all series."""
    return set(_ask(server, "label/__name__/values"))


def _ask(server: EngineProcess, path: str) -> Any:  # noqa: ANN401  any JSON
    with urllib.request.urlopen(f"{server.url}/api/v1/{path}", timeout=30) as answer:  # noqa: S310  this machine
        return json.load(answer)["data"]


def _meta(label: str) -> str:
    return "__meta_kubernetes_pod_label_" + "".join(char if char.isalnum() else "_" for char in label)


def _relabelling(of_monitor: Mapping[str, Any]) -> dict[str, Any]:
    names = {"sourceLabels": "source_labels", "targetLabel": "target_label", "replacement": "replacement"}
    return {names[name]: value for name, value in of_monitor.items()}
