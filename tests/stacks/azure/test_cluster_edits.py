"""An edit of the deployment file changes the resources that it is about, and no others."""

import re

import pytest

from sandbox.azure.diff import compare
from sandbox.azure.graph import Graph, short_type
from sandbox.azure.outages import DOWN, outages
from sandbox.azure.replacements import AZURE, KUBERNETES, defined
from sandbox.azure.schema import args_shape, resource_shape
from sandbox.changes import Op
from tests.blueprint.documents import ABSENT, Edits
from tests.stacks.azure.manifests import DIGESTS, pod, workloads
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
        {"azure.access": {"kind": "public", "authorized_ranges": ["203.0.113.0/24"]}},
        {
            AKS,
            *("dashboard:Grafana grafana", "network:PrivateEndpoint grafana", "network:PrivateDnsZoneGroup grafana"),
            *("privatedns:PrivateZone grafana", "privatedns:VirtualNetworkLink grafana"),
            *("compute:VirtualMachine jump", "compute:VirtualMachineExtension entra-sign-in"),
            *("network:BastionHost bastion", "network:NetworkInterface jump", "network:PublicIPAddress bastion"),
            *("network:NetworkSecurityGroup jump", "network:Subnet jump", "network:Subnet AzureBastionSubnet"),
            *("authorization:RoleAssignment admins-0-find-jump-host",),
            *("authorization:RoleAssignment admins-0-sign-in-to-jump-host",),
        },
    ),
    "one slow service": (
        {"azure.services.1.drain_timeout_s": 3000},
        {AKS, "containerservice:AgentPool h100"},
    ),
    # The router runs then, and is missed when it does not.
    "images": (
        {"images": {"router": f"sha256:{'1' * 64}"}},
        {"alertsmanagement:PrometheusRuleGroup rules-cluster"},
    ),
    "router": ({"azure.router.replicas": 3}, set()),
}


def _asked(graph: Graph) -> dict[str, object]:
    return {f"{r.type.removeprefix('azure-native:')} {r.name}": inputs(r) for r in azure_resources(graph)}


@pytest.mark.parametrize("case", CASES)
def test_an_edit_changes_what_it_is_about(case: str) -> None:
    edits, expected = CASES[case]
    before, after = _asked(cluster(edited({}))), _asked(cluster(edited(edits)))
    assert {key for key in before | after if before.get(key) != after.get(key)} == expected


POOL_B = {"name": "h100b", "vm_size": "Standard_NC96ads_A100_v4", "nodes": {"min": 1, "max": 2}, "surge_nodes": 1}
SERVICE_B = {
    "kind": "aggregated",
    "name": "voxtral-b",
    "model": "voxtral-small-24b",
    "pool": "h100b",
    "replicas": {"min": 1, "max": 3},
    "load": {"sessions": 800, "session_tokens": 1500, "context_tokens": 32768},
    "tensor_parallel": 2,
    "cpus": 40,
}
BESIDE = {"azure.pools.5": POOL_B, "azure.services.4": SERVICE_B}
INSTEAD = {"azure.pools.1": POOL_B, "azure.services.1": SERVICE_B}
AWAY: dict[str, tuple[Edits, set[tuple[str, str]]]] = {
    "public": (
        CASES["public"][0],
        {("cluster", f"apiServerAccessProfile.{name}") for name in ("enablePrivateCluster", "privateDNSZone")},
    ),
    "another GPU": (
        {"azure.pools.1.vm_size": "Standard_NC48ads_A100_v4", "azure.services.1.cpus": 40},
        {("h100", "vmSize")},
    ),
    "pods' range": ({"azure.network.pod_cidr": "10.200.0.0/16"}, {("cluster", "networkProfile.podCidr")}),
    "network": (
        {"azure.network.cidr": "10.70.0.0/16"},
        {
            ("network", "addressSpace.addressPrefixes[0]"),
            ("nodes", "addressPrefix"),
            ("endpoints", "addressPrefix"),
            ("jump", "addressPrefix"),
            ("AzureBastionSubnet", "addressPrefix"),
        },
    ),
    "system pool": (
        {"azure.system_pool.vm_size": "Standard_D4ds_v5"},
        {("cluster", "agentPoolProfiles[0].vmSize")},
    ),
    "zones": (
        {"azure.availability_zones": ["1", "2"]},
        {
            ("egress", "zones[2]"),
            ("cluster", "agentPoolProfiles[0].availabilityZones[2]"),
            ("a100", "availabilityZones[2]"),
            ("h100spot", "availabilityZones[2]"),
        },
    ),
    "nodes": (CASES["nodes"][0], set()),
    "logs": (CASES["logs"][0], set()),
}
"""Edits, and what of the cluster would be away: the resource, and the input that cannot change in place."""


OF_CALLERS = {
    "network": {("edge", "addressPrefix")},
    "zones": {("edge", "zones[2]"), ("rtp", "zones[2]"), ("cpu", "availabilityZones[2]")},
}
"""What goes too where a file has callers."""


@pytest.mark.parametrize("file", ["cells", "production-azure"])
@pytest.mark.parametrize("case", AWAY)
def test_a_replacement_of_what_serves_or_holds_state_is_an_outage(case: str, file: str) -> None:
    edits, expected = AWAY[case]
    steps = compare(cluster(edited({}, file)), cluster(edited(edits, file)))
    found = outages(steps)
    if file == "production-azure":
        expected = expected | OF_CALLERS.get(case, set())
    assert {(each.name, change) for each in found for change in each.changes} == expected
    assert all(re.search(r"minutes|hour|for good|until", each.text()) for each in found)
    assert outages(steps, [name for name, _ in expected]) == []


def test_a_pool_gets_another_size_with_a_new_one_beside_it() -> None:
    """New pool and service, then the old ones away: nothing is replaced; a graph for the service comes and goes."""
    old, both, new = (cluster(edited(edits)) for edits in ({}, BESIDE, INSTEAD))
    drawn = (Op.UPDATE, "dashboard-services")
    assert _touched(old, both) == {(Op.CREATE, "h100b"), drawn}
    assert _touched(both, new) == {(Op.DELETE, "h100"), drawn}


def test_callers_are_served_by_both_while_a_pool_gets_another_size() -> None:
    """The router finds the new service by what it finds the old one by, under one model; only the old one goes."""
    both, new = (workloads(edited({"images": DIGESTS, **edits})) for edits in (BESIDE, INSTEAD))
    routing = pod(both, "router").containers[0]["command"]
    key, _, value = routing[routing.index("--k8s-label-selector") + 1].partition("=")
    served = {}
    for name in ("voxtral", "voxtral-b"):
        found = pod(both, name)
        assert found.labels[key] == value
        command = found.container("engine")["command"]
        served[name] = command[command.index("--served-model-name") + 1]
    assert len(set(served.values())) == 1
    assert [each.name for each in outages(compare(both, new))] == ["voxtral"]


def _touched(before: Graph, after: Graph) -> set[tuple[Op, str]]:
    return {(step.op, step.resource.name) for step in compare(before, after) if step.op is not Op.SAME}


def test_a_cluster_takes_what_is_in_it_along() -> None:
    (found,) = outages(compare(cluster(edited({})), cluster(edited(AWAY["public"][0]))))
    assert found.along >= 5 + 1  # its pools, and what watches it


def test_definitions_are_read_where_they_say_that_an_input_cannot_change() -> None:
    aks = defined("azure-native:containerservice:ManagedCluster")
    assert {"dnsPrefix", "fqdnSubdomain", "networkProfile.outboundType"} <= set(aks)
    assert "location" in defined("azure-native:containerregistry:Registry")
    assert "hostGroupID" in defined("azure-native:containerservice:AgentPool")
    assert "kubernetesVersion" not in aks


@pytest.mark.parametrize("kind", [*AZURE, *KUBERNETES])
def test_what_definitions_do_not_say_is_an_input_and_has_a_source(kind: str) -> None:
    token = f"{package(kind)}:{kind}"
    for path, source in {**AZURE, **KUBERNETES}[kind].items():
        assert source.startswith("https://"), path
        assert path not in defined(token)  # or the row can go
        shape = resource_shape(token)
        for name in path.split("."):
            assert shape
            assert name in shape.inputs, path
            shape = args_shape(shape.module, shape.inputs[name].args or "")


def test_what_is_away_is_said_of_types_that_there_are() -> None:
    assert all(resource_shape(f"{package(kind)}:{kind}") for kind in DOWN)


@pytest.mark.parametrize("file", ["cells", "production-azure"])
def test_what_is_away_is_said_of_all_that_production_protects(file: str) -> None:
    protected = {short_type(each.type) for each in azure_resources(cluster(edited({}, file))) if each.protect}
    assert len(protected) > 8
    assert protected <= DOWN.keys()


def package(kind: str) -> str:
    return "kubernetes" if "/v" in kind else "azure-native"
