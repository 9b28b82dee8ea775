"""The AKS cluster: access, contents, upgrades, and logs."""

from typing import Any

import pytest
import yaml

from tests.blueprint.documents import DEPLOYMENTS, load_text
from tests.stacks.azure.recorded import azure_resources, cluster, edit_deployment, inputs
from voice_blueprint.azure.names import ClusterOutput
from voice_blueprint.file.model.azure import Azure
from voice_blueprint.observability.azure.alerts import DEPLOYMENT_RULE_GROUPS
from voice_sandbox.azure.graph import Graph
from voice_sandbox.azure.values import Secret, reveal_secrets

PRODUCTION = edit_deployment({})
PUBLIC = edit_deployment(
    {
        "azure.access": {"kind": "public", "authorized_ranges": ["203.0.113.0/24"]},
        "azure.pools.4.purchase": {"option": "on-demand"},
    }
)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return cluster(PRODUCTION)


@pytest.fixture(scope="module")
def aks(graph: Graph) -> dict[str, Any]:
    return inputs(graph.get_resource("cluster", "containerservice:ManagedCluster"))


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Azure:
    return load_text(PRODUCTION, tmp_path_factory.mktemp("azure")).azure


def test_every_rule_group_belongs_to_a_service_or_has_a_reserved_name(graph: Graph, azure: Azure) -> None:
    groups = {each.name for each in azure_resources(graph) if each.type.endswith("PrometheusRuleGroup")}
    services = {f"rules-{service.name}" for service in azure.services}
    assert groups - services <= {f"rules-{name}" for name in DEPLOYMENT_RULE_GROUPS}


def test_users_can_only_sign_in_with_entra(aks: dict[str, Any], azure: Azure) -> None:
    assert aks["disableLocalAccounts"] is True
    assert aks["enableRBAC"] is True
    assert aks["aadProfile"]["managed"] is True
    assert aks["aadProfile"]["enableAzureRBAC"] is True
    assert aks["aadProfile"]["adminGroupObjectIDs"] == list(azure.admin_groups)
    assert "linuxProfile" not in aks  # no SSH key


def test_pods_get_identities_without_secrets(aks: dict[str, Any]) -> None:
    assert aks["oidcIssuerProfile"]["enabled"] is True
    assert aks["securityProfile"]["workloadIdentity"]["enabled"] is True
    assert "servicePrincipalProfile" not in aks
    assert "podIdentityProfile" not in aks


def test_a_private_api_server_has_no_public_name(aks: dict[str, Any]) -> None:
    access = aks["apiServerAccessProfile"]
    assert access["enablePrivateCluster"] is True
    assert access["enablePrivateClusterPublicFQDN"] is False
    assert "authorizedIPRanges" not in access


def test_a_public_api_server_is_reachable_from_listed_ranges_and_its_nodes() -> None:
    graph = cluster(PUBLIC)
    access = inputs(graph.get_resource("cluster", "containerservice:ManagedCluster"))["apiServerAccessProfile"]
    egress = reveal_secrets(graph.get_resource("egress", "network:PublicIPAddress").outputs["ipAddress"])
    assert access["enablePrivateCluster"] is False
    assert access["authorizedIPRanges"] == ["203.0.113.0/24", f"{egress}/32"]
    assert access["disableRunCommand"] is True


def test_cilium_is_data_plane_and_network_policy_of_an_overlay(aks: dict[str, Any], azure: Azure) -> None:
    network = aks["networkProfile"]
    assert (network["networkPlugin"], network["networkPluginMode"]) == ("azure", "overlay")
    assert (network["networkDataplane"], network["networkPolicy"]) == ("cilium", "cilium")
    assert (network["podCidr"], network["serviceCidr"]) == (azure.network.pod_cidr, azure.network.service_cidr)
    assert network["outboundType"] == "userAssignedNATGateway"


def test_system_pool_rejects_other_pods(aks: dict[str, Any], azure: Azure) -> None:
    (pool,) = aks["agentPoolProfiles"]
    assert pool["mode"] == "System"
    assert pool["nodeTaints"] == ["CriticalAddonsOnly=true:NoSchedule"]
    assert (pool["minCount"], pool["maxCount"]) == (azure.system_pool.nodes.min, azure.system_pool.nodes.max)
    assert pool["availabilityZones"] == list(azure.availability_zones)
    assert pool["enableEncryptionAtHost"] is True


def test_autoscaler_waits_for_the_slowest_service(aks: dict[str, Any], azure: Azure) -> None:
    profile = aks["autoScalerProfile"]
    assert profile["expander"] == "least-waste"
    assert int(profile["maxGracefulTerminationSec"]) > max(service.drain_timeout_s for service in azure.services)
    assert profile["skipNodesWithLocalStorage"] == "false"  # engines have an emptyDir


def test_pod_autoscalers_are_enabled(aks: dict[str, Any]) -> None:
    scalers = aks["workloadAutoScalerProfile"]
    assert scalers["keda"]["enabled"] is True
    assert scalers["verticalPodAutoscaler"]["enabled"] is True


def test_automatic_upgrades_only_run_in_the_maintenance_window(graph: Graph, aks: dict[str, Any], azure: Azure) -> None:
    assert aks["autoUpgradeProfile"] == {"upgradeChannel": "patch", "nodeOSUpgradeChannel": "NodeImage"}
    configurations = {
        inputs(r)["configName"]: inputs(r)["maintenanceWindow"]
        for r in graph.find_resources_of_type("containerservice:MaintenanceConfiguration")
    }
    assert set(configurations) == {"aksManagedAutoUpgradeSchedule", "aksManagedNodeOSUpgradeSchedule"}
    for window in configurations.values():
        assert window["schedule"] == {"weekly": {"dayOfWeek": azure.maintenance.day, "intervalWeeks": 1}}
        assert (window["startTime"], window["durationHours"]) == (azure.maintenance.start, azure.maintenance.hours)
        assert window["utcOffset"] == "+00:00"


def test_image_cleaner_has_the_interval_that_arm_requires(aks: dict[str, Any]) -> None:
    cleaner = aks["securityProfile"]["imageCleaner"]
    assert cleaner["enabled"] is True
    assert cleaner["intervalHours"] >= 24


def test_metrics_reach_the_workspace_that_is_queried(graph: Graph, aks: dict[str, Any]) -> None:
    assert aks["azureMonitorProfile"]["metrics"]["enabled"] is True
    workspace = graph.get_resource("metrics", "monitor:AzureMonitorWorkspace")
    rule = inputs(graph.get_resource("prometheus", "monitor:DataCollectionRule"))
    assert [d["accountResourceId"] for d in rule["destinations"]["monitoringAccounts"]] == [workspace.id]
    assert rule["dataFlows"] == [{"streams": ["Microsoft-PrometheusMetrics"], "destinations": ["metrics"]}]
    grafana = inputs(graph.get_resource("grafana", "dashboard:Grafana"))["properties"]
    linked = grafana["grafanaIntegrations"]["azureMonitorWorkspaceIntegrations"]
    assert [each["azureMonitorWorkspaceResourceId"] for each in linked] == [workspace.id]


def test_every_collection_rule_is_associated_with_the_cluster(graph: Graph) -> None:
    aks = graph.get_resource("cluster", "containerservice:ManagedCluster")
    rules = {rule.id for rule in graph.find_resources_of_type("monitor:DataCollectionRule")}
    associations = [inputs(r) for r in graph.find_resources_of_type("monitor:DataCollectionRuleAssociation")]
    assert {each["dataCollectionRuleId"] for each in associations} == rules
    assert {each["resourceUri"] for each in associations} == {aks.id}
    # The agent for container logs looks up its association by name.
    assert "ContainerInsightsExtension" in {each["associationName"] for each in associations}


def test_audit_logs_are_retained(graph: Graph) -> None:
    logs = graph.get_resource("logs", "operationalinsights:Workspace")
    settings = {inputs(r)["resourceUri"]: inputs(r) for r in graph.find_resources_of_type("monitor:DiagnosticSetting")}
    assert {setting["workspaceId"] for setting in settings.values()} == {logs.id}
    aks = graph.get_resource("cluster", "containerservice:ManagedCluster")
    assert "kube-audit-admin" in {log["category"] for log in settings[str(aks.id)]["logs"]}
    for kind in ("containerregistry:Registry", "keyvault:Vault"):
        (resource,) = graph.find_resources_of_type(kind)
        assert settings[str(resource.id)]["logs"] == [{"categoryGroup": "audit", "enabled": True}]


def test_logs_have_the_configured_retention(graph: Graph, azure: Azure) -> None:
    logs = inputs(graph.get_resource("logs", "operationalinsights:Workspace"))
    assert logs["retentionInDays"] == azure.log_retention_days
    assert logs["features"]["disableLocalAuth"] is True


CALLER_OUTPUTS = {
    ClusterOutput.CALLER_IDENTITIES,
    ClusterOutput.STATE_HOST,
    ClusterOutput.RTP_ADDRESS_NAME,
    ClusterOutput.EDGE_ADDRESSES,
    ClusterOutput.ARCHIVE_URL,
}
"""Additional outputs of a file with callers."""


def test_a_file_with_callers_exports_their_addresses() -> None:
    outputs = cluster(edit_deployment({}, "production-azure")).outputs
    assert set(outputs) == {str(output) for output in ClusterOutput}
    assert all(reveal_secrets(value) for value in outputs.values())


def test_everything_is_exported_and_the_kubeconfig_is_secret(graph: Graph) -> None:
    assert set(graph.outputs) == {str(output) for output in ClusterOutput if output not in CALLER_OUTPUTS}
    assert all(reveal_secrets(value) for value in graph.outputs.values())
    kubeconfig = graph.outputs[ClusterOutput.KUBECONFIG]
    assert isinstance(kubeconfig, Secret)
    assert yaml.safe_load(reveal_secrets(kubeconfig))["kind"] == "Config"


@pytest.mark.parametrize("file", ["production-azure", "cells", "both"])
def test_shipped_files_define_a_valid_cluster(file: str) -> None:
    graph = cluster(edit_deployment({}, file))
    pools = {inputs(r)["agentPoolName"] for r in graph.find_resources_of_type("containerservice:AgentPool")}
    document = yaml.safe_load((DEPLOYMENTS / f"{file}.yaml").read_text(encoding="utf-8"))
    on_cpus = {"cpu"} if "cpu_pool" in document["azure"] else set()
    assert pools == on_cpus | {pool["name"] for pool in document["azure"]["pools"]}


def test_azure_names_are_unique(graph: Graph) -> None:
    ids = [str(resource.id).lower() for resource in azure_resources(graph)]
    assert len(ids) == len(set(ids))
