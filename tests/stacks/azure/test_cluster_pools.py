"""GPU pools match the deployment file and are separate resources."""

from typing import Any

import pytest

from tests.blueprint.documents import load_text
from tests.nonempty import nonempty
from tests.stacks.azure.recorded import cluster, edit_deployment, inputs
from voice_blueprint import catalog
from voice_blueprint.azure.rollout import ENGINE_STARTUP_TIMEOUT_S
from voice_blueprint.file.model.azure import Azure, ChatService, SpotNodes
from voice_sandbox.azure.graph import Graph

GROUP_ID = (
    "/subscriptions/99999999-9999-4999-8999-999999999999/resourceGroups/r/"
    "providers/Microsoft.Compute/capacityReservationGroups/a100"
)
RESERVATION_PURCHASE = {"option": "capacity-reservation", "group_id": GROUP_ID}
FILES = {
    "production": edit_deployment({}),
    "reserved": edit_deployment(
        {
            "azure.pools.3.purchase": RESERVATION_PURCHASE,
            "azure.pools.4.purchase": {"option": "spot", "max_usd_per_hour": 1.5},
        }
    ),
    "both": edit_deployment({}, "both"),
}


@pytest.fixture(scope="module", params=FILES)
def graph(request: pytest.FixtureRequest) -> Graph:
    return cluster(FILES[request.param])


def _azure(file: str, folders: pytest.TempPathFactory) -> Azure:
    return load_text(FILES[file], folders.mktemp(file)).azure


def _pools(graph: Graph) -> dict[str, dict[str, Any]]:
    return {inputs(r)["agentPoolName"]: inputs(r) for r in graph.find_resources_of_type("containerservice:AgentPool")}


@pytest.mark.parametrize("file", FILES)
def test_pools_match_the_file(file: str, tmp_path_factory: pytest.TempPathFactory) -> None:
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


def test_pools_are_separate_from_the_cluster_resource(graph: Graph) -> None:
    aks = inputs(graph.get_resource("cluster", "containerservice:ManagedCluster"))
    assert [pool["name"] for pool in aks["agentPoolProfiles"]] == ["system"]
    for pool in graph.find_resources_of_type("containerservice:AgentPool"):
        assert inputs(pool)["mode"] == "User"
        # The autoscaler determines the number of nodes.
        assert "count" in pool.ignore_changes


def test_nodes_are_private_and_encrypted(graph: Graph) -> None:
    for pool in nonempty(_pools(graph).values()):
        assert pool["enableNodePublicIP"] is False
        assert pool["enableEncryptionAtHost"] is True
        assert pool["securityProfile"]["sshAccess"] == "Disabled"


def test_gpus_are_not_partitioned_and_have_a_driver(graph: Graph) -> None:
    for pool in nonempty(_pools(graph).values()):
        assert pool["gpuProfile"] == {"driver": "Install"}
        assert "gpuInstanceProfile" not in pool


def test_gpu_nodes_reject_pods_without_gpus(graph: Graph) -> None:
    for pool in nonempty(_pools(graph).values()):
        assert "nvidia.com/gpu=present:NoSchedule" in pool["nodeTaints"]


def test_a_pool_of_cells_is_dedicated(graph: Graph) -> None:
    alone = {name for name, pool in _pools(graph).items() if any("voice-serve/pool" in t for t in pool["nodeTaints"])}
    assert alone <= {"cells"}
    if "cells" in _pools(graph):
        assert "voice-serve/pool=cells:NoSchedule" in _pools(graph)["cells"]["nodeTaints"]


def test_labels_contain_pool_and_gpu(graph: Graph) -> None:
    for name, pool in nonempty(_pools(graph).items()):
        size = catalog.vm_sizes()[pool["vmSize"]]
        assert pool["nodeLabels"]["voice-serve/pool"] == name
        assert pool["nodeLabels"]["voice-serve/gpu"] == size.gpu
        assert pool["nodeLabels"]["voice-serve/gpu-count"] == str(size.gpu_count)
        # The cluster autoscaler's label for nodes with GPUs, needed for pools without a node.
        assert pool["nodeLabels"]["accelerator"] == "nvidia"


@pytest.mark.parametrize("file", FILES)
def test_an_upgrade_uses_a_surge_node_if_configured(file: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    pools = _pools(cluster(FILES[file]))
    for pool in nonempty(_azure(file, tmp_path_factory).pools):
        upgrade = pools[pool.name]["upgradeSettings"]
        numbers = (upgrade.get("maxSurge"), upgrade.get("maxUnavailable"))
        if isinstance(pool.purchase, SpotNodes):
            assert numbers == (None, None)  # AKS refuses either for a spot pool
        else:
            assert numbers == (("1", "0") if pool.surge_nodes else ("0", "1"))


@pytest.mark.parametrize("file", FILES)
def test_a_drained_node_waits_for_its_slowest_service(file: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    pools = _pools(cluster(FILES[file]))
    azure = _azure(file, tmp_path_factory)
    for service in nonempty(azure.services):
        for name in service.pools if isinstance(service, ChatService) else (service.pool,):
            # A disruption budget refuses an eviction until the replacement of the last evicted pod is ready.
            assert (
                pools[name]["upgradeSettings"]["drainTimeoutInMinutes"] * 60
                > ENGINE_STARTUP_TIMEOUT_S + service.drain_timeout_s
            )


def test_a_drained_node_waits_for_the_replacement_of_each_of_its_pods() -> None:
    """A node of ``pairs`` has two pods, which are evicted one after the other since an upgrade adds a node.

    A node of ``h200`` has eight, which may be evicted together, since nothing has room for their replacements.
    """
    pools = _pools(cluster(edit_deployment({}, "production-azure")))
    one_s = ENGINE_STARTUP_TIMEOUT_S + 600
    for name, rounds in {"pairs": 2, "h100": 1, "h200": 1, "a100": 1}.items():
        waits_s = pools[name]["upgradeSettings"]["drainTimeoutInMinutes"] * 60
        assert rounds * one_s < waits_s < (rounds + 1) * one_s


def test_the_system_pool_waits_for_the_router() -> None:
    """The router drains for as long as the slowest service, and runs on the system pool."""
    for drain_s, minutes in ((600, 30), (3600, 62)):
        graph = cluster(edit_deployment({"azure.services.0.drain_timeout_s": drain_s}))
        aks = inputs(graph.get_resource("cluster", "containerservice:ManagedCluster"))
        (system,) = aks["agentPoolProfiles"]
        assert system["upgradeSettings"]["drainTimeoutInMinutes"] == minutes


def test_a_drain_timeout_does_not_exceed_the_maximum_of_aks() -> None:
    pools = _pools(
        cluster(
            edit_deployment(
                {"azure.pools.2.surge_nodes": 1, "azure.services.2.drain_timeout_s": 3600, "accepted_checks": []}
            )
        )
    )
    assert (
        8 * (ENGINE_STARTUP_TIMEOUT_S + 3600)
        < pools["h200"]["upgradeSettings"]["drainTimeoutInMinutes"] * 60
        <= 1440 * 60
    )


def test_only_spot_pools_can_be_evicted() -> None:
    pools = _pools(cluster(FILES["production"]))
    spot = {name for name, pool in pools.items() if pool["scaleSetPriority"] == "Spot"}
    assert spot == {"h100spot"}
    assert pools["h100spot"]["scaleSetEvictionPolicy"] == "Delete"
    assert pools["h100spot"]["spotMaxPrice"] == -1  # never evicted because of its price
    assert "kubernetes.azure.com/scalesetpriority=spot:NoSchedule" in pools["h100spot"]["nodeTaints"]
    assert pools["h100spot"]["nodeLabels"]["kubernetes.azure.com/scalesetpriority"] == "spot"
    for name in set(pools) - spot:
        assert not {"scaleSetEvictionPolicy", "spotMaxPrice"} & set(pools[name])
        assert not any("scalesetpriority" in taint for taint in pools[name]["nodeTaints"])


def test_the_spot_price_limit_is_configurable() -> None:
    assert _pools(cluster(FILES["reserved"]))["h100spot"]["spotMaxPrice"] == 1.5


def test_reserved_pools_use_their_reservation_group_after_the_role_assignment() -> None:
    graph = cluster(FILES["reserved"])
    pools = _pools(graph)
    assert {name for name, pool in pools.items() if "capacityReservationGroupID" in pool} == {"a100"}
    assert pools["a100"]["capacityReservationGroupID"] == GROUP_ID
    (grant,) = [
        r for r in graph.find_resources_of_type("authorization:RoleAssignment") if inputs(r)["scope"] == GROUP_ID
    ]
    assert grant.urn in graph.get_resource("a100", "containerservice:AgentPool").dependencies


def test_two_pools_of_one_reservation_share_a_role_assignment() -> None:
    graph = cluster(
        edit_deployment(
            {"azure.pools.0.purchase": RESERVATION_PURCHASE, "azure.pools.3.purchase": RESERVATION_PURCHASE}
        )
    )
    grants = [r for r in graph.find_resources_of_type("authorization:RoleAssignment") if inputs(r)["scope"] == GROUP_ID]
    assert len(grants) == 1
    for pool in ("cells", "a100"):
        assert grants[0].urn in graph.get_resource(pool, "containerservice:AgentPool").dependencies
