"""Resources of the shipped files conform to Azure's type definitions, and mistakes are detected."""

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.blueprint.documents import DEPLOYMENTS
from tests.nonempty import nonempty
from tests.stacks.azure.manifests import DIGESTS
from tests.stacks.azure.recorded import azure_resources, cluster, edit_deployment, inputs
from voice_sandbox.azure.definitions import find_definition_problems
from voice_sandbox.azure.graph import Graph, shorten_type
from voice_sandbox.azure.schema import DEFINITIONS_FILE, find_api_version, load_definitions

FILES = {
    "production": edit_deployment({"images": DIGESTS}, "production-azure"),
    "cells": edit_deployment({"images": DIGESTS}),
    "both": edit_deployment({}, "both"),
    "public": edit_deployment({"azure.access": {"kind": "public", "authorized_ranges": ["203.0.113.0/24"]}}),
}


@pytest.mark.parametrize("file", FILES)
def test_inputs_match_the_azure_definitions(file: str) -> None:
    for resource in nonempty(azure_resources(cluster(FILES[file]))):
        assert find_definition_problems(shorten_type(resource.type), inputs(resource)) == [], resource.name


def test_the_table_has_every_deployed_type_in_the_api_version_of_the_sdk() -> None:
    deployed = {shorten_type(each.type) for file in FILES for each in azure_resources(cluster(FILES[file]))}
    assert deployed == load_definitions().keys()
    for kind, known in load_definitions().items():
        assert known["type"].endswith(f"@{find_api_version(f'azure-native:{kind}')}"), (
            f"{kind}: run `make refresh-azure-types`"
        )


def test_the_table_names_its_source() -> None:
    origin = json.loads(DEFINITIONS_FILE.read_text(encoding="utf-8"))["origin"]
    assert origin["repository"] == "https://github.com/Azure/bicep-types-az"
    assert len(origin["commit"]) == 40
    assert sorted(path.stem for path in DEPLOYMENTS.glob("*.yaml") if "\nazure:" in path.read_text()) == [
        "both", "cells", "hearing", "production-azure", "qwen",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def graph() -> Graph:
    return cluster(FILES["production"])


def change_at_path(value: Mapping[str, Any], path: str, new: object) -> dict[str, Any]:
    """Return a copy with another value at a path; numbers are list indexes."""
    whole: Any = copy.deepcopy(dict(value))
    *above, last = path.split(".")
    at = whole
    for part in above:
        at = at[int(part)] if isinstance(at, list) else at[part]
    at[int(last) if isinstance(at, list) else last] = new
    return dict(whole)


AKS, POOL, RULES = (
    "containerservice:ManagedCluster",
    "containerservice:AgentPool",
    "alertsmanagement:PrometheusRuleGroup",
)
MISTAKES = [
    (POOL, "gpuProfile", {"drivers": "Install"}, "properties.gpuProfile.drivers: Azure has no such property"),
    (POOL, "gpuProfile.driver", "install", "'install' is not one of Install, None"),
    (POOL, "scaleSetPriority", "spot", "'spot' is not one of Spot, Regular"),
    (POOL, "maxCount", "4", "properties.maxCount: '4' is not an integer"),
    (POOL, "maxCount", 4.5, "properties.maxCount: 4.5 is not an integer"),
    (POOL, "osDiskSizeGB", 4096, "properties.osDiskSizeGB: 4096 is not 0 to 2048"),
    (POOL, "upgradeSettings.drainTimeoutInMinutes", 1441, "1441 is not 1 to 1440"),
    (POOL, "enableAutoScaling", "true", "properties.enableAutoScaling: 'true' is neither true nor false"),
    (POOL, "availabilityZones", "1", "properties.availabilityZones: '1' is not a list"),
    (POOL, "nodeLabels", ["a"], "properties.nodeLabels: ['a'] is not a map"),
    (POOL, "nodeTaint", ["a=b:NoSchedule"], "properties.nodeTaint: Azure has no such property"),
    (POOL, "provisioningState", "Succeeded", "properties.provisioningState: it is read-only"),
    (POOL, "agentPoolName", "Pairs", "name: 'Pairs' does not match ^[a-z][a-z0-9]{0,11}$"),
    (AKS, "autoScalerProfile.expander", "least_waste", "'least_waste' is not one of"),
    (AKS, "autoScalerProfile.maxGracefulTermination", "1", "max-graceful-termination: Azure has no such"),
    (AKS, "networkProfile.networkDataplane", "Cilium", "'Cilium' is not one of azure, cilium"),
    (AKS, "networkProfile.podCidr", "10.244.0.0/33", "does not match"),
    (AKS, "identity.type", "User", "'User' is not one of"),
    (
        AKS,
        "agentPoolProfiles.0.maxSurge",
        "1",
        "agentPoolProfiles[0].maxSurge: Azure has no such property",
    ),
    (RULES, "rules.0.expr", "up", "properties.rules[0].expr: Azure has no such property"),
    (RULES, "rules.0.severity", "high", "properties.rules[0].severity: 'high' is not an integer"),
    (RULES, "scopes", None, "properties.scopes: Azure requires it"),
    ("monitor:ActionGroup", "groupShortName", "voice-serve-on-call", "19 characters is not to 12"),
    ("monitor:ActionGroup", "emailReceivers.0.emailAddress", None, "emailReceivers[0].emailAddress: Azure requires it"),
    ("consumption:Budget", "notifications", {"a": {"operator": "Above"}}, "'Above' is not one of"),
    ("consumption:Budget", "timeGrain", "Weekly", "'Weekly' is not one of"),
    ("dashboard:DashboardDefinition", "properties.data", "{}", "properties.data: Azure has no such property"),
    ("dashboard:Dashboard", "dashboardName", "voice_services", "'voice_services' does not match"),
    ("network:NetworkSecurityGroup", "securityRules.0.access", "Permit", "'Permit' is not one of Allow, Deny"),
    ("network:PrivateEndpoint", "privateLinkServiceConnections.0.groups", ["vault"], "groups: Azure has no such"),
    ("keyvault:Vault", "properties.softDeleteRetentionInDay", 7, "softDeleteRetentionInDay: Azure has no such"),
    ("containerregistry:Registry", "sku.name", "Gold", "'Gold' is not one of"),
    ("operationalinsights:Workspace", "retentionInDays", "30", "'30' is not an integer"),
    ("monitor:DataCollectionRule", "dataFlows.0.stream", ["x"], "dataFlows[0].stream: Azure has no such property"),
]


@pytest.mark.parametrize(
    ("kind", "path", "value", "message"), MISTAKES, ids=[f"{each[0]}-{each[1]}" for each in MISTAKES]
)
def test_a_mistake_is_detected(graph: Graph, kind: str, path: str, value: object, message: str) -> None:
    given = next(
        inputs(each) for each in graph.find_resources_of_type(kind) if "/" not in path and _reaches(inputs(each), path)
    )
    found = find_definition_problems(kind, change_at_path(given, path, value))
    assert any(message in problem for problem in found), found


def _reaches(given: Mapping[str, Any], path: str) -> bool:
    at: Any = given
    for part in path.split(".")[:-1]:
        if isinstance(at, list):
            if not at:
                return False
            at = at[int(part)]
        elif part in at:
            at = at[part]
        else:
            return False
    return True
