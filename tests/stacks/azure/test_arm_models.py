"""What the program asks of AKS is what Microsoft's own SDK declares, and that check sees mistakes."""

from typing import Any

import pytest
from azure.mgmt.containerservice import models

from sandbox.azure.graph import Graph
from tests.stacks.azure.arm_models import problems
from tests.stacks.azure.recorded import cluster, edited, inputs

FILES = {
    "private": edited({}),
    "public": edited({"azure.access": {"kind": "public", "authorized_ranges": ["203.0.113.0/24"]}}),
    "both": edited({}, "both"),
}
KINDS = {
    "containerservice:ManagedCluster": models.ManagedCluster,
    "containerservice:AgentPool": models.AgentPool,
    "containerservice:MaintenanceConfiguration": models.MaintenanceConfiguration,
}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return cluster(FILES["private"])


@pytest.mark.parametrize("file", FILES)
def test_requests_are_as_declared(file: str) -> None:
    graph = cluster(FILES[file])
    for kind, model in KINDS.items():
        assert graph.of_type(kind)
        for resource in graph.of_type(kind):
            assert problems(model, inputs(resource)) == []


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("gpuProfile", {"drivers": "Install"}, "gpuProfile.drivers: GPUProfile has no such property"),
        ("gpuProfile", {"driver": "install"}, "properties.gpuProfile.driver: 'install' is none of"),
        ("scaleSetPriority", "spot", "'spot' is none of Spot, Regular"),
        ("maxCount", "4", "properties.maxCount: '4' is no int"),
        ("maxCount", 4.5, "properties.maxCount: 4.5 is no whole number"),
        ("enableAutoScaling", "true", "properties.enableAutoScaling: 'true' is no bool"),
        ("availabilityZones", "1", "properties.availabilityZones: '1' is no list"),
        ("availabilityZones", [1], "properties.availabilityZones[0]: 1 is no str"),
        ("nodeLabels", ["a"], "properties.nodeLabels: ['a'] is no map"),
        (
            "nodeTaint",
            ["a=b:NoSchedule"],
            "properties.nodeTaint: AgentPoolManagedClusterAgentPoolProfileProperties has no",
        ),
        ("provisioningState", "Succeeded", "properties.provisioningState: only Azure sets it"),
    ],
)
def test_a_wrong_pool_is_refused(graph: Graph, place: str, value: object, said: str) -> None:
    pool = {**inputs(graph.named("cells", "containerservice:AgentPool")), place: value}
    (problem,) = problems(models.AgentPool, pool)
    assert said in problem


@pytest.mark.parametrize(
    ("profile", "value", "said"),
    [
        ("autoScalerProfile", {"maxGracefulTermination": "1"}, "max-graceful-termination: "),
        ("autoScalerProfile", {"expander": "least_waste"}, "'least_waste' is none of"),
        ("autoScalerProfile", {"maxGracefulTerminationSec": 720}, "720 is no str"),
        ("networkProfile", {"networkDataplane": "Cilium"}, "'Cilium' is none of azure, cilium"),
        ("autoUpgradeProfile", {"upgradeChannel": "weekly"}, "'weekly' is none of"),
        ("identity", {"type": "User"}, "'User' is none of"),
        ("aadProfile", {"enableAzureRbac": True}, "aadProfile.enableAzureRbac: ManagedClusterAADProfile has no such"),
    ],
)
def test_a_wrong_cluster_is_refused(graph: Graph, profile: str, value: dict[str, Any], said: str) -> None:
    aks = {**inputs(graph.named("cluster", "containerservice:ManagedCluster")), profile: value}
    (problem,) = problems(models.ManagedCluster, aks)
    assert said in problem
