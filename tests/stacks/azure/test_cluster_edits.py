"""An edit of the deployment file changes the resources that it is about, and no others."""

import pytest

from sandbox.azure.graph import Graph
from tests.blueprint.documents import ABSENT, Edits
from tests.stacks.azure.recorded import azure_resources, cluster, edited, inputs

Changes = set[str]
AKS = "containerservice:ManagedCluster cluster"
CASES: dict[str, tuple[Edits, Changes]] = {
    "nodes": ({"azure.pools.1.nodes": {"min": 1, "max": 5}}, {"containerservice:AgentPool h100"}),
    "disk": ({"azure.pools.0.os_disk_gib": 512}, {"containerservice:AgentPool cells"}),
    "price limit": (
        {"azure.pools.4.purchase": {"option": "spot", "max_usd_per_hour": 2.0}},
        {"containerservice:AgentPool h100spot"},
    ),
    "no spot": ({"azure.pools.4.purchase": ABSENT}, {"containerservice:AgentPool h100spot"}),
    "logs": ({"azure.log_retention_days": 90}, {"operationalinsights:Workspace logs"}),
    "window": (
        {"azure.maintenance": {"day": "Tuesday", "start": "02:00", "hours": 4}},
        {
            "containerservice:MaintenanceConfiguration aksManagedAutoUpgradeSchedule",
            "containerservice:MaintenanceConfiguration aksManagedNodeOSUpgradeSchedule",
        },
    ),
    "system pool": ({"azure.system_pool.nodes": {"min": 3, "max": 9}}, {AKS}),
    "public": (
        {"azure.network.private_cluster": False, "azure.network.authorized_ranges": ["203.0.113.0/24"]},
        {AKS},
    ),
    "one slow service": (
        {"azure.services.1.drain_timeout_s": 3000},
        {AKS, "containerservice:AgentPool h100"},
    ),
    "images": ({"images": {"router": f"sha256:{'1' * 64}"}}, set()),
    "router": ({"azure.router.replicas": 3}, set()),
}


def _asked(graph: Graph) -> dict[str, object]:
    return {f"{r.type.removeprefix('azure-native:')} {r.name}": inputs(r) for r in azure_resources(graph)}


@pytest.mark.parametrize("case", CASES)
def test_an_edit_changes_what_it_is_about(case: str) -> None:
    edits, expected = CASES[case]
    before, after = _asked(cluster(edited({}))), _asked(cluster(edited(edits)))
    assert {key for key in before | after if before.get(key) != after.get(key)} == expected
