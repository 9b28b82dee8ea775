"""GPU pools: each what the deployment file says, and a resource of its own."""

from typing import Any

import pytest

from blueprint import catalog
from blueprint.file.model.azure import Azure, ChatService
from sandbox.azure.graph import Graph
from tests.blueprint.documents import load_text
from tests.stacks.azure.recorded import cluster, edited, inputs

GROUP_ID = "/subscriptions/s/resourceGroups/r/providers/Microsoft.Compute/capacityReservationGroups/a100"
RESERVED = {"option": "capacity-reservation", "group_id": GROUP_ID}
FILES = {
    "production": edited({}),
    "reserved": edited(
        {"azure.pools.3.purchase": RESERVED, "azure.pools.4.purchase": {"option": "spot", "max_usd_per_hour": 1.5}}
    ),
    "both": edited({}, "both"),
}


@pytest.fixture(scope="module", params=FILES)
def graph(request: pytest.FixtureRequest) -> Graph:
    return cluster(FILES[request.param])


def _azure(file: str, folders: pytest.TempPathFactory) -> Azure:
    return load_text(FILES[file], folders.mktemp(file)).azure


def _pools(graph: Graph) -> dict[str, dict[str, Any]]:
    return {inputs(r)["agentPoolName"]: inputs(r) for r in graph.of_type("containerservice:AgentPool")}


@pytest.mark.parametrize("file", FILES)
def test_pools_are_what_the_file_says(file: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    azure, made = _azure(file, tmp_path_factory), _pools(cluster(FILES[file]))
    assert set(made) == {pool.name for pool in azure.pools}
    for pool in azure.pools:
        agent = made[pool.name]
        assert agent["vmSize"] == pool.vm_size
        assert agent["availabilityZones"] == list(pool.availability_zones or azure.availability_zones)
        assert agent["enableAutoScaling"] is True
        assert (agent["minCount"], agent["maxCount"]) == (pool.nodes.min, pool.nodes.max)
        assert agent["osDiskSizeGB"] == pool.os_disk_gib
        assert agent["kubeletConfig"] == {
            "cpuManagerPolicy": "static",
            "topologyManagerPolicy": str(pool.topology_policy),
        }


def test_pools_are_no_part_of_the_cluster_resource(graph: Graph) -> None:
    aks = inputs(graph.named("cluster", "containerservice:ManagedCluster"))
    assert [pool["name"] for pool in aks["agentPoolProfiles"]] == ["system"]
    for pool in graph.of_type("containerservice:AgentPool"):
        assert inputs(pool)["mode"] == "User"
        # A new number of nodes is the autoscaler's.
        assert "count" in pool.ignore_changes


def test_nodes_are_closed_and_encrypted(graph: Graph) -> None:
    for pool in _pools(graph).values():
        assert pool["enableNodePublicIP"] is False
        assert pool["enableEncryptionAtHost"] is True
        assert pool["securityProfile"]["sshAccess"] == "Disabled"


def test_gpus_stay_whole_and_have_a_driver(graph: Graph) -> None:
    for pool in _pools(graph).values():
        assert pool["gpuProfile"] == {"driver": "Install"}
        assert "gpuInstanceProfile" not in pool


def test_every_gpu_node_turns_away_what_asks_for_no_gpu(graph: Graph) -> None:
    for pool in _pools(graph).values():
        assert "nvidia.com/gpu=present:NoSchedule" in pool["nodeTaints"]


def test_a_pool_of_cells_is_theirs_alone(graph: Graph) -> None:
    alone = {name for name, pool in _pools(graph).items() if any("voice-serve/pool" in t for t in pool["nodeTaints"])}
    assert alone <= {"cells"}
    if "cells" in _pools(graph):
        assert "voice-serve/pool=cells:NoSchedule" in _pools(graph)["cells"]["nodeTaints"]


def test_labels_say_pool_and_gpu(graph: Graph) -> None:
    for name, pool in _pools(graph).items():
        size = catalog.vm_sizes()[pool["vmSize"]]
        assert pool["nodeLabels"]["voice-serve/pool"] == name
        assert pool["nodeLabels"]["voice-serve/gpu"] == size.gpu
        assert pool["nodeLabels"]["voice-serve/gpu-count"] == str(size.gpu_count)
        # The cluster autoscaler's label for nodes with GPUs, here for pools that have no node to look at.
        assert pool["nodeLabels"]["accelerator"] == "nvidia"


@pytest.mark.parametrize("file", FILES)
def test_an_upgrade_takes_a_spare_node_where_the_file_asks_for_one(
    file: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pools = _pools(cluster(FILES[file]))
    for pool in _azure(file, tmp_path_factory).pools:
        upgrade = pools[pool.name]["upgradeSettings"]
        assert (upgrade["maxSurge"], upgrade["maxUnavailable"]) == (("1", "0") if pool.surge_nodes else ("0", "1"))


@pytest.mark.parametrize("file", FILES)
def test_a_drained_node_waits_for_its_slowest_service(file: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    pools = _pools(cluster(FILES[file]))
    for service in _azure(file, tmp_path_factory).services:
        for name in service.pools if isinstance(service, ChatService) else (service.pool,):
            assert pools[name]["upgradeSettings"]["drainTimeoutInMinutes"] * 60 > service.drain_timeout_s


def test_spot_pools_and_no_others_can_be_evicted() -> None:
    pools = _pools(cluster(FILES["production"]))
    spot = {name for name, pool in pools.items() if pool["scaleSetPriority"] == "Spot"}
    assert spot == {"h100spot"}
    assert pools["h100spot"]["scaleSetEvictionPolicy"] == "Delete"
    assert pools["h100spot"]["spotMaxPrice"] == -1  # never for its price
    assert "kubernetes.azure.com/scalesetpriority=spot:NoSchedule" in pools["h100spot"]["nodeTaints"]
    assert pools["h100spot"]["nodeLabels"]["kubernetes.azure.com/scalesetpriority"] == "spot"
    for name in set(pools) - spot:
        assert not {"scaleSetEvictionPolicy", "spotMaxPrice"} & set(pools[name])
        assert not any("scalesetpriority" in taint for taint in pools[name]["nodeTaints"])


def test_a_price_limit_is_the_files() -> None:
    assert _pools(cluster(FILES["reserved"]))["h100spot"]["spotMaxPrice"] == 1.5


def test_reserved_pools_draw_from_their_group_once_they_may() -> None:
    graph = cluster(FILES["reserved"])
    pools = _pools(graph)
    assert {name for name, pool in pools.items() if "capacityReservationGroupID" in pool} == {"a100"}
    assert pools["a100"]["capacityReservationGroupID"] == GROUP_ID
    grant = graph.named("control-plane-uses-reservation-of-a100")
    assert inputs(grant)["scope"] == GROUP_ID
    assert grant.urn in graph.named("a100", "containerservice:AgentPool").dependencies


def test_two_pools_of_one_reservation_need_one_grant() -> None:
    graph = cluster(edited({"azure.pools.0.purchase": RESERVED, "azure.pools.3.purchase": RESERVED}))
    grants = [r for r in graph.of_type("authorization:RoleAssignment") if inputs(r)["scope"] == GROUP_ID]
    assert len(grants) == 1
    for pool in ("cells", "a100"):
        assert grants[0].urn in graph.named(pool, "containerservice:AgentPool").dependencies
