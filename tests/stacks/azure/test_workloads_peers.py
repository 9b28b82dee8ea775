"""Pods of replicas that share KV cache."""

import pytest

from tests.stacks.azure.manifests import DIGESTS, Pod, pod, production, workloads
from voice_blueprint.azure.contract import LMCACHE_COORDINATOR
from voice_blueprint.contract.images import Image
from voice_blueprint.engines.launch.services import POD_ADDRESS_VARIABLE, create_coordinator_launcher
from voice_sandbox.azure.graph import Graph

SERVICE = "voxtral"
WITH_PEERS = production({"azure.services.1.lmcache": {"l1_gib": 100, "peers": True}})
WITHOUT_PEERS = production({"azure.services.1.lmcache": {"l1_gib": 100}})


@pytest.fixture(scope="module")
def graph() -> Graph:
    return workloads(WITH_PEERS)


@pytest.fixture(scope="module")
def engine(graph: Graph) -> Pod:
    return pod(graph, SERVICE)


def test_a_server_advertises_its_own_address(engine: Pod) -> None:
    (server,) = engine.sidecars
    assert f"$({POD_ADDRESS_VARIABLE})" in " ".join(server["command"])
    assert {"name": POD_ADDRESS_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}} in server["env"]


def test_the_lmcache_image_contains_nixl(engine: Pod) -> None:
    """The publisher's LMCache image lacks it."""
    (server,) = engine.sidecars
    assert DIGESTS[Image.ASR_VLLM] in server["image"]
    assert server["command"][0] == "lmcache"


def test_one_coordinator_lists_the_peers(graph: Graph) -> None:
    coordinator = pod(graph, "lmcache-coordinator")
    assert coordinator.owner["spec"]["replicas"] == 1
    assert coordinator.owner["spec"]["strategy"] == {"type": "Recreate"}
    (container,) = coordinator.containers
    assert tuple(container["command"]) == create_coordinator_launcher().build_command()
    (port,) = container["ports"]
    assert port["containerPort"] == LMCACHE_COORDINATOR.number


def test_without_peers_there_is_no_coordinator() -> None:
    graph = workloads(WITHOUT_PEERS)
    assert not [each for each in graph.resources if each.name == "lmcache-coordinator"]
    (server,) = pod(graph, SERVICE).sidecars
    assert "localhost" in server["command"]
