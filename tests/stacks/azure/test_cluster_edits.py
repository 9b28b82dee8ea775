"""An edit of the deployment file changes only the affected resources."""

import re
from dataclasses import replace

import pytest

from tests.blueprint.documents import ABSENT, Edits
from tests.nonempty import nonempty
from tests.stacks.azure.manifests import DIGESTS, manifests, pod, workloads
from tests.stacks.azure.recorded import azure_resources, cluster, edit_deployment, inputs
from tests.stacks.azure.refusals.planted import change_graph
from voice_blueprint.checks.azure.pools import PLACEHOLDER_ID
from voice_sandbox.azure.diff import diff_graphs
from voice_sandbox.azure.graph import Graph, Resource, shorten_type
from voice_sandbox.azure.refusals import find_rejections
from voice_sandbox.azure.replacements import (
    AZURE_REPLACEMENT_TRIGGERS,
    KUBERNETES_REPLACEMENT_TRIGGERS,
    UNCHANGEABLE_INPUTS_BY_TYPE,
    list_immutable_inputs,
)
from voice_sandbox.azure.schema import load_args_shape, load_resource_shape
from voice_sandbox.changes import OpType
from voice_sandbox.rehearsals.azure_outages import OUTAGE_TEXT_BY_TYPE, find_outages

Changes = set[str]
AKS = "containerservice:ManagedCluster cluster"
GRANT = "authorization:RoleAssignment"
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
            *(f"{GRANT} admins-{PLACEHOLDER_ID}-find-jump-host",),
            *(f"{GRANT} admins-{PLACEHOLDER_ID}-sign-in-to-jump-host",),
        },
    ),
    "one slow service": (
        {"azure.services.1.drain_timeout_s": 3000},
        {AKS, "containerservice:AgentPool h100"},
    ),
    # The router is running then, so its removal is an outage.
    "images": (
        {"images": {"router": f"sha256:{'1' * 64}"}},
        {"alertsmanagement:PrometheusRuleGroup rules-cluster"},
    ),
    "router": ({"azure.router.replicas": 3}, set()),
}


def _inputs_by_resource(graph: Graph) -> dict[str, object]:
    return {f"{r.type.removeprefix('azure-native:')} {r.name}": inputs(r) for r in azure_resources(graph)}


@pytest.mark.parametrize("case", CASES)
def test_an_edit_only_changes_its_resources(case: str) -> None:
    edits, expected = CASES[case]
    before, after = (
        _inputs_by_resource(cluster(edit_deployment({}))),
        _inputs_by_resource(cluster(edit_deployment(edits))),
    )
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
ADDED_POOL = {"azure.pools.5": POOL_B, "azure.services.4": SERVICE_B}
REPLACED_POOL = {"azure.pools.1": POOL_B, "azure.services.1": SERVICE_B}
RESERVATION = {
    "option": "capacity-reservation",
    "group_id": "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/gpus"
    "/providers/Microsoft.Compute/capacityReservationGroups/gpus",
}
DISRUPTIVE_EDITS: dict[str, tuple[Edits, set[tuple[str, str]]]] = {
    "another GPU": (
        {"azure.pools.1.vm_size": "Standard_NC48ads_A100_v4", "azure.services.1.cpus": 40},
        {("h100", "vmSize")},
    ),
    "pods' range": ({"azure.network.pod_cidr": "10.200.0.0/16"}, {("cluster", "networkProfile.podCidr")}),
    "disk": ({"azure.pools.3.os_disk_gib": 512}, {("a100", "osDiskSizeGB")}),
    "NUMA alignment": (
        {"azure.pools.3.topology_policy": "restricted"},
        {("a100", "kubeletConfig.topologyManagerPolicy")},
    ),
    "zones of a pool": ({"azure.pools.3.availability_zones": ["1", "2"]}, {("a100", "availabilityZones[2]")}),
    "price limit": (CASES["price limit"][0], {("h100spot", "spotMaxPrice")}),
    "no spot": (
        CASES["no spot"][0],
        {("h100spot", name) for name in ("scaleSetPriority", "scaleSetEvictionPolicy", "spotMaxPrice")},
    ),
    "reservation": (
        {"azure.pools.3.purchase": RESERVATION},
        {("a100", "capacityReservationGroupID")},
    ),
    "nodes": (CASES["nodes"][0], set()),
    "logs": (CASES["logs"][0], set()),
}
"""Edits that cause an outage, with the affected resource and the input that cannot be updated in place."""


@pytest.mark.parametrize("file", ["cells", "production-azure"])
@pytest.mark.parametrize("case", DISRUPTIVE_EDITS)
def test_replacing_a_serving_or_stateful_resource_is_an_outage(case: str, file: str) -> None:
    edits, expected = DISRUPTIVE_EDITS[case]
    old, new = (cluster(edit_deployment(each, file)) for each in ({}, edits))
    steps = diff_graphs(old, new)
    found = find_outages(steps)
    assert {(each.name, change) for each in found for change in each.changes} == expected
    assert all(re.search(r"minutes|hour|permanently|until", each.format_summary()) for each in found)
    assert find_outages(steps, [name for name, _ in expected]) == []
    assert find_rejections([new], steps) == []


REFUSED_EDITS: dict[str, tuple[Edits, set[tuple[str, str]]]] = {
    "public": (
        CASES["public"][0],
        {("cluster", f"apiServerAccessProfile.{name}") for name in ("enablePrivateCluster", "privateDNSZone")},
    ),
    "network": (
        {"azure.network.cidr": "10.70.0.0/16"},
        {
            ("network", "addressSpace.addressPrefixes"),
            *((name, "addressPrefix") for name in ("nodes", "endpoints", "jump", "AzureBastionSubnet")),
        },
    ),
    "system pool": (
        {"azure.system_pool.vm_size": "Standard_D4ds_v5"},
        {("cluster", "agentPoolProfiles[0].vmSize")},
    ),
    "zones": (
        {"azure.availability_zones": ["1", "2"]},
        {("egress", "zones"), ("cluster", "agentPoolProfiles[0].availabilityZones")},
    ),
    "first zone": (
        {"azure.availability_zones": ["2", "3", "1"]},
        {("egress", "zones"), ("cluster", "agentPoolProfiles[0].availabilityZones")},
    ),
}
"""Edits that Azure refuses, with each affected resource and input. Pulumi would not replace these resources."""
CALLER_EDITS = {
    "network": {("edge", "addressPrefix")},
    "zones": {("edge", "zones"), ("rtp", "zones")},
    "first zone": {("edge", "zones"), ("rtp", "zones")},
}
"""Additional refusals of a file with callers."""


@pytest.mark.parametrize("file", ["cells", "production-azure"])
@pytest.mark.parametrize("case", REFUSED_EDITS)
def test_a_change_that_azure_refuses_is_no_replacement(case: str, file: str) -> None:
    edits, expected = REFUSED_EDITS[case]
    old, new = (cluster(edit_deployment(each, file)) for each in ({}, edits))
    steps = diff_graphs(old, new)
    found = [each for each in find_rejections([new], steps) if each.refusal.endswith("-stays")]
    if file == "production-azure":
        expected = expected | CALLER_EDITS.get(case, set())
    assert all(re.search(r": [\w.\[\]]+ was .+ and would become .+$", each.message) for each in found)
    names = {new[each.urn].name for each in found}
    assert {(new[each.urn].name, each.message.partition(": ")[2].split(" was ")[0]) for each in found} == expected
    assert all("another name" in each.remedy for each in found)
    assert not names & {step.resource.name for step in steps if step.op is OpType.REPLACE}
    outages = {each.name for each in find_outages(steps) if each.changes}
    assert outages <= {"a100", "h100spot", "cpu"}, "pools without own zones are replaced"


CHANGED_VALUES: dict[str, object] = {
    "addressPrefix": "10.70.0.0/24",
    "addressSpace.addressPrefixes": ["10.70.0.0/16"],
    "agentPoolProfiles.availabilityZones": ["9"],
    "availabilityZones": ["9"],
    "zones": ["9"],
}
"""Values of inputs that a test changes, other than a text."""


@pytest.mark.parametrize(
    ("kind", "path"), [(kind, path) for kind, paths in UNCHANGEABLE_INPUTS_BY_TYPE.items() for path in paths]
)
def test_pulumi_replaces_a_resource_or_the_preview_refuses_the_change(kind: str, path: str) -> None:
    """Otherwise `pulumi up` fails in the middle of a deployment, and again each time."""
    old = cluster(edit_deployment({}, "production-azure"))
    for resource in nonempty(old.find_resources_of_type(kind)):
        value = CHANGED_VALUES.get(path, "changed")
        place = path.replace("agentPoolProfiles.", "agentPoolProfiles.0.")
        new = change_graph(old, kind, resource.name, {place: value})
        steps = diff_graphs(old, new)
        refused = [
            each
            for each in find_rejections([new], steps)
            if each.urn == resource.urn and each.refusal.endswith(f"{path.removeprefix('agentPoolProfiles.')}-stays")
        ]
        is_replaced = next(step.op for step in steps if step.urn == resource.urn) is OpType.REPLACE
        assert is_replaced == (path in resource.replace_on_changes), resource.name
        assert bool(refused) != is_replaced, resource.name
        assert all(f"{value[0] if isinstance(value, list) else value}" in each.message for each in refused)


@pytest.mark.parametrize("kind", ["authorization:RoleAssignment", "containerservice:AgentPool"])
def test_pulumi_is_told_what_azure_cannot_change(kind: str) -> None:
    """The provider only knows a few of these inputs."""
    for resource in nonempty(cluster(edit_deployment({}, "production-azure")).find_resources_of_type(kind)):
        assert set(resource.replace_on_changes) == set(UNCHANGEABLE_INPUTS_BY_TYPE[kind])
        # A pool has a fixed name, so that the new one cannot be created before the old one is deleted.
        assert bool(resource.delete_before_replace) == (kind == "containerservice:AgentPool")


def test_a_pool_is_resized_by_adding_a_second_pool() -> None:
    """Adding a pool and a service and then removing the old ones replaces no resource.

    A graph of the service is added and removed.
    """
    old, both, new = (cluster(edit_deployment(edits)) for edits in ({}, ADDED_POOL, REPLACED_POOL))
    drawn = (OpType.UPDATE, "dashboard-services")
    assert _changed_resources(old, both) == {(OpType.CREATE, "h100b"), drawn}
    assert _changed_resources(both, new) == {(OpType.DELETE, "h100"), drawn}


def test_callers_are_served_by_both_pools_during_a_resize() -> None:
    """The router has pods of both services for one model; only the old service is removed."""
    both, new = (workloads(edit_deployment({"images": DIGESTS, **edits})) for edits in (ADDED_POOL, REPLACED_POOL))
    files = [each["data"] for each in manifests(both, "ConfigMap")]
    (config,) = [text for data in files for name, text in data.items() if "haproxy" in name]
    backend = next(each for each in config.split("\nbackend ") if each.startswith("voxtral-small-24b\n"))
    names = {each["metadata"]["name"]: each["spec"] for each in manifests(both, "Service")}
    served = {}
    for name in ("voxtral", "voxtral-b"):
        found = pod(both, name)
        assert f" engines-{name}.voice.svc.cluster.local:8000 " in backend
        assert names[f"engines-{name}"]["selector"].items() <= found.labels.items()
        command = found.container("engine")["command"]
        served[name] = command[command.index("--served-model-name") + 1]
    assert len(set(served.values())) == 1
    assert [each.name for each in find_outages(diff_graphs(both, new))] == ["voxtral"]


GROUP_A, GROUP_B = "11111111-2222-3333-4444-555555555555", "66666666-7777-8888-9999-000000000000"
SHARED_RESERVATION = {"azure.pools.0.purchase": RESERVATION, "azure.pools.3.purchase": RESERVATION}
GRANT_EDITS: dict[str, tuple[Edits, Edits, set[OpType]]] = {
    "first group removed": (
        {"azure.admin_groups": [GROUP_A, GROUP_B]},
        {"azure.admin_groups": [GROUP_B]},
        {OpType.DELETE},
    ),
    "groups in another order": (
        {"azure.admin_groups": [GROUP_A, GROUP_B]},
        {"azure.admin_groups": [GROUP_B, GROUP_A]},
        set(),
    ),
    "group added at the start": (
        {"azure.admin_groups": [GROUP_A]},
        {"azure.admin_groups": [GROUP_B, GROUP_A]},
        {OpType.CREATE},
    ),
    "first pool leaves a shared reservation": (
        SHARED_RESERVATION,
        {"azure.pools.3.purchase": RESERVATION},
        set(),
    ),
    "pool added to a reservation": (
        {"azure.pools.3.purchase": RESERVATION},
        SHARED_RESERVATION,
        set(),
    ),
}
"""Edits that only remove or add role assignments: files before and after, and the steps of role assignments."""


@pytest.mark.parametrize("case", GRANT_EDITS)
def test_a_role_assignment_that_remains_is_neither_replaced_nor_created_again(case: str) -> None:
    """Azure refuses a second assignment of a role while the first one exists."""
    before, after, expected = GRANT_EDITS[case]
    old, new = (cluster(edit_deployment(edits)) for edits in (before, after))
    steps = diff_graphs(old, new)
    changed = {step.op for step in steps if shorten_type(step.resource.type) == GRANT} - {OpType.SAME}
    assert changed == expected
    assert [each.message for each in find_rejections([new], steps) if each.refusal == "granted-twice"] == []


def test_role_assignments_of_the_previous_release_keep_their_state() -> None:
    """Their names contained the position of the group or the name of the first pool."""
    text = edit_deployment({"azure.admin_groups": [GROUP_A, GROUP_B], **SHARED_RESERVATION})
    new = cluster(text)
    renamed = [
        each for each in new.find_resources_of_type(GRANT) if any(former_name(each, urn) for urn in each.aliases)
    ]
    assert len(renamed) == 2 * 8 + 1
    names = {former_name(each, urn) for each in renamed for urn in each.aliases} - {""}
    assert {"admins-0-administer-cluster", "admins-1-find-jump-host"} <= names
    assert "control-plane-uses-reservation-of-cells" in names
    first = {each.urn: next(urn for urn in each.aliases if former_name(each, urn)) for each in renamed}
    old = replace(new, resources=tuple(replace(each, urn=first.get(each.urn, each.urn)) for each in new.resources))
    assert {step.op for step in diff_graphs(old, new)} == {OpType.SAME}


def former_name(resource: Resource, alias: str) -> str:
    """Return the name in an alias that has another name, or an empty text."""
    name = alias.rpartition("::")[2]
    return "" if name == resource.name else name


def _changed_resources(before: Graph, after: Graph) -> set[tuple[OpType, str]]:
    return {(step.op, step.resource.name) for step in diff_graphs(before, after) if step.op is not OpType.SAME}


def test_replacing_a_cluster_replaces_its_children() -> None:
    (found,) = find_outages(
        diff_graphs(cluster(edit_deployment({})), cluster(edit_deployment(DISRUPTIVE_EDITS["pods' range"][0])))
    )
    assert found.also_replaced >= 5 + 1  # its pools and monitoring resources


def test_immutable_inputs_are_read_from_the_definitions() -> None:
    aks = list_immutable_inputs("azure-native:containerservice:ManagedCluster")
    assert {"dnsPrefix", "fqdnSubdomain", "networkProfile.outboundType"} <= set(aks)
    assert "location" in list_immutable_inputs("azure-native:containerregistry:Registry")
    assert "hostGroupID" in list_immutable_inputs("azure-native:containerservice:AgentPool")
    assert "kubernetesVersion" not in aks


TABLES = {
    "replaced": {**AZURE_REPLACEMENT_TRIGGERS, **KUBERNETES_REPLACEMENT_TRIGGERS},
    "refused": UNCHANGEABLE_INPUTS_BY_TYPE,
}


@pytest.mark.parametrize(("table", "kind"), [(table, kind) for table in TABLES for kind in TABLES[table]])
def test_additions_to_definitions_are_inputs_with_a_source(table: str, kind: str) -> None:
    token = f"{package(kind)}:{kind}"
    for path, source in nonempty(TABLES[table][kind].items()):
        assert source.startswith("https://"), path
        assert table == "refused" or path not in list_immutable_inputs(token)  # otherwise the row can be removed
        assert table == "replaced" or path not in AZURE_REPLACEMENT_TRIGGERS.get(kind, {})
        shape = load_resource_shape(token)
        for name in path.split("."):
            assert shape
            assert name in shape.inputs, path
            shape = load_args_shape(shape.module, shape.inputs[name].args_class or "")


def test_types_that_cause_outages_exist() -> None:
    assert all(load_resource_shape(f"{package(kind)}:{kind}") for kind in OUTAGE_TEXT_BY_TYPE)


@pytest.mark.parametrize("file", ["cells", "production-azure"])
def test_outages_are_reported_for_all_protected_types(file: str) -> None:
    protected = {
        shorten_type(each.type) for each in azure_resources(cluster(edit_deployment({}, file))) if each.protect
    }
    assert len(protected) > 8
    assert protected <= OUTAGE_TEXT_BY_TYPE.keys()


def package(kind: str) -> str:
    return "kubernetes" if "/v" in kind else "azure-native"
