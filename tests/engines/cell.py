"""The prefill/decode cell of ``deployments/cells.yaml`` as the pod that the workloads program emits."""

from functools import cache
from pathlib import Path

from tests.stacks.azure.manifests import DIGESTS, manifests, pod, workloads
from tests.stacks.azure.recorded import edit_deployment
from voice_blueprint.azure.contract import (
    DECODE_HTTP,
    DECODE_LMCACHE,
    DECODE_LMCACHE_HTTP,
    DECODE_NIXL,
    ENGINE_HTTP,
    LMCACHE,
    LMCACHE_HTTP,
    PD_ROUTER_HTTP,
    PREFILL_HTTP,
    PREFILL_NIXL,
)
from voice_blueprint.engines.launch.pd_router import METRICS_PORT
from voice_sandbox.azure.graph import Graph
from voice_sandbox.engines.pod import Pod
from voice_sandbox.engines.substitutions import CommandRenderer
from voice_sandbox.loopback import find_free_port

NAME = "voxtral-cells"
MODEL = "voxtral-small-24b"
PORTS = (
    ENGINE_HTTP, PREFILL_HTTP, DECODE_HTTP, PD_ROUTER_HTTP, PREFILL_NIXL, DECODE_NIXL,
    LMCACHE, DECODE_LMCACHE, LMCACHE_HTTP, DECODE_LMCACHE_HTTP,
)  # fmt: skip
IDLE_CONTAINERS = frozenset({"gpus"})
"""Containers that only request resources: the one that requests the GPUs sleeps."""


@cache
def cell_graph() -> Graph:
    """Return the workloads of the file. A cell without GPUs causes a warning, and is not refused."""
    return workloads(edit_deployment({"images": DIGESTS, "azure.services.0.without_peer_access": "warn"}))


def cell_pod(folder: Path, models: Path) -> Pod:
    """Return the cell's pod, on free ports, without starting it."""
    graph = cell_graph()
    ports = {port.number: find_free_port() for port in PORTS} | {METRICS_PORT: find_free_port()}
    texts: dict[str, str] = {}
    for config in manifests(graph, "ConfigMap"):
        if config["metadata"]["name"].startswith(f"{NAME}-"):
            texts |= config["data"]
    return Pod(pod(graph, NAME).spec, texts, CommandRenderer(folder, models, ports), IDLE_CONTAINERS)
