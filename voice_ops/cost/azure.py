"""Priced items for Pulumi resources."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from voice_blueprint.capacity.bounds import EDGE_UNITS
from voice_ops.cost.model import Amount, ExpectedSizes, ResourceUsage

Inputs = Mapping[str, Any]
PricingRule = Callable[[Inputs, ExpectedSizes], Iterator[ResourceUsage]]

PREMIUM_DISK_GIB_BY_TIER = {"p10": 128, "p15": 256, "p20": 512, "p30": 1024, "p40": 2048}
"""Premium SSD tiers by their maximum disk size.
https://learn.microsoft.com/azure/virtual-machines/disks-types#premium-ssds"""


def _list_pool_uses(inputs: Inputs, expected: ExpectedSizes) -> Iterator[ResourceUsage]:
    name = str(inputs.get("agentPoolName") or inputs.get("name"))
    nodes = expected.calculate_size(name, inputs["minCount"], inputs["maxCount"])
    yield ResourceUsage(inputs["vmSize"], nodes, is_exact=True)
    if inputs["osDiskType"] == "Managed":
        yield _create_disk_use(inputs["osDiskSizeGB"], nodes)


def _list_machine_uses(inputs: Inputs, _: ExpectedSizes) -> Iterator[ResourceUsage]:
    yield ResourceUsage(inputs["hardwareProfile"]["vmSize"], Amount.fixed(1), is_exact=True)
    yield _create_disk_use(inputs["storageProfile"]["osDisk"]["diskSizeGB"], Amount.fixed(1))


def _create_disk_use(gib: int, disks: Amount) -> ResourceUsage:
    return ResourceUsage(
        f"os-disk-{next(tier for tier, max_gib in PREMIUM_DISK_GIB_BY_TIER.items() if gib <= max_gib)}", disks
    )


def _list_bastion_uses(inputs: Inputs, _: ExpectedSizes) -> Iterator[ResourceUsage]:
    yield ResourceUsage(f"bastion-{inputs['sku']['name'].lower()}-hour", Amount.fixed(1))


def _list_cluster_uses(inputs: Inputs, expected: ExpectedSizes) -> Iterator[ResourceUsage]:
    if inputs["sku"]["tier"] != "Free":
        yield ResourceUsage(f"aks-{inputs['sku']['tier'].lower()}-hour", Amount.fixed(1))
    for pool in inputs["agentPoolProfiles"]:
        yield from _list_pool_uses(pool, expected)


def _list_registry_uses(inputs: Inputs, _: ExpectedSizes) -> Iterator[ResourceUsage]:
    yield ResourceUsage(f"registry-{inputs['sku']['name'].lower()}-day", Amount.fixed(1))


def _list_grafana_uses(inputs: Inputs, _: ExpectedSizes) -> Iterator[ResourceUsage]:
    is_redundant = inputs["properties"]["zoneRedundancy"] == "Enabled"
    yield ResourceUsage("grafana-zone-redundant-hour" if is_redundant else "grafana-standard-hour", Amount.fixed(1))


def _list_store_uses(inputs: Inputs, _: ExpectedSizes) -> Iterator[ResourceUsage]:
    nodes = 2 if inputs["highAvailability"] == "Enabled" else 1
    yield ResourceUsage(f"redis-{inputs['sku']['name'].lower().replace('_', '-')}-hour", Amount.fixed(nodes))


def _list_edge_uses(inputs: Inputs, _: ExpectedSizes) -> Iterator[ResourceUsage]:
    yield ResourceUsage("waf-gateway-hour", Amount.fixed(1))
    reserved = inputs["autoscaleConfiguration"]["minCapacity"] * EDGE_UNITS
    yield ResourceUsage("waf-gateway-capacity-unit", Amount.fixed(reserved))


def _list_service_uses(inputs: Inputs, _: ExpectedSizes) -> Iterator[ResourceUsage]:
    # Public and internal Services are separate Azure load balancers, each with fewer than five rules.
    if inputs["spec"].get("type") == "LoadBalancer":
        yield ResourceUsage("azure-load-balancer-hour", Amount.fixed(1))


def _list_claim_uses(inputs: Inputs, _: ExpectedSizes) -> Iterator[ResourceUsage]:
    size = str(inputs["spec"]["resources"]["requests"]["storage"])
    yield ResourceUsage("premium-files", Amount.fixed(float(size.removesuffix("Gi"))))


def _list_metric_alert_uses(inputs: Inputs, _: ExpectedSizes) -> Iterator[ResourceUsage]:
    # A rule is charged per time series. A rule that is split by a dimension has one series per value of the dimension.
    # The edge has at most three backends.
    split = any("*" in each["values"] for row in inputs["criteria"]["allOf"] for each in row["dimensions"])
    yield ResourceUsage("azure-metric-alert", Amount.fixed(3 if split else 1))


def _create_single_unit_rule(item: str) -> PricingRule:
    def list_uses(_: Inputs, __: ExpectedSizes) -> Iterator[ResourceUsage]:
        yield ResourceUsage(item, Amount.fixed(1))

    return list_uses


PRICING_RULES: dict[str, PricingRule] = {
    "compute:VirtualMachine": _list_machine_uses,
    "containerregistry:Registry": _list_registry_uses,
    "containerservice:AgentPool": _list_pool_uses,
    "containerservice:ManagedCluster": _list_cluster_uses,
    "core/v1:PersistentVolumeClaim": _list_claim_uses,
    "core/v1:Service": _list_service_uses,
    "dashboard:Grafana": _list_grafana_uses,
    "monitor:MetricAlert": _list_metric_alert_uses,
    "network:ApplicationGateway": _list_edge_uses,
    "network:BastionHost": _list_bastion_uses,
    "network:NatGateway": _create_single_unit_rule("azure-nat-gateway-hour"),
    "network:PrivateEndpoint": _create_single_unit_rule("private-endpoint-hour"),
    "network:PublicIPAddress": _create_single_unit_rule("azure-public-ipv4-hour"),
    "privatedns:PrivateZone": _create_single_unit_rule("private-dns-zone"),
    "redisenterprise:RedisEnterprise": _list_store_uses,
}
"""Resource types whose price is independent of traffic."""

ITEMS_BY_TYPE: dict[str, tuple[tuple[str, str | None], ...]] = {
    "containerservice:AgentPool": (("traffic between zones and to the internet", "azure-internet-data"),),
    "dashboard:Grafana": (("users", None),),
    "core/v1:Service": (("data of load balancers", "azure-load-balancer-data"),),
    "network:ApplicationGateway": (("capacity units beyond the reserve", "waf-gateway-capacity-unit"),),
    "network:BastionHost": (("sessions of operators", None),),
    "monitor:ActionGroup": (("messages", None),),
    "keyvault:Vault": (("operations", None),),
    "monitor:AzureMonitorWorkspace": (("samples", "prometheus-samples"), ("queries of alerts", None)),
    "network:NatGateway": (("data", "azure-nat-gateway-data"),),
    "network:PrivateEndpoint": (
        ("data of sessions", "private-endpoint-data"),
        ("images and secrets", "private-endpoint-data"),
    ),
    "storage:StorageAccount": (("transcripts and the requests for them", None),),
    "operationalinsights:Workspace": (("logs", "log-analytics-ingested"),),
}
"""Usage-based charges by type. Each has a description of the usage, and an item in the price book if there is one."""

FREE_RESOURCE_TYPES = frozenset(
    {
        *("compute:VirtualMachineExtension", "network:NetworkInterface"),
        *("alertsmanagement:PrometheusRuleGroup", "authorization:RoleAssignment", "consumption:Budget"),
        *("containerservice:MaintenanceConfiguration", "dashboard:Dashboard", "dashboard:DashboardDefinition"),
        *("kubernetesconfiguration:Extension", "managedidentity:FederatedIdentityCredential"),
        *("managedidentity:UserAssignedIdentity", "monitor:DataCollectionEndpoint", "monitor:DataCollectionRule"),
        *("monitor:DataCollectionRuleAssociation", "monitor:DiagnosticSetting", "network:NetworkSecurityGroup"),
        *("network:PrivateDnsZoneGroup", "network:Subnet", "network:VirtualNetwork"),
        *("network:WebApplicationFirewallPolicy", "privatedns:VirtualNetworkLink", "resources:ResourceGroup"),
        *("redisenterprise:AccessPolicyAssignment", "redisenterprise:Database"),
        *("storage:BlobContainer", "storage:ManagementPolicy"),
        # The price of nodes includes the workloads of a cluster.
        *("apps/v1:DaemonSet", "apps/v1:Deployment", "azmonitoring.coreos.com/v1:PodMonitor", "batch/v1:Job"),
        *("core/v1:ConfigMap", "core/v1:LimitRange", "core/v1:Namespace", "core/v1:ResourceQuota"),
        *("core/v1:ServiceAccount", "keda.sh/v1alpha1:ScaledObject", "keda.sh/v1alpha1:TriggerAuthentication"),
        *("networking.k8s.io/v1:NetworkPolicy", "policy/v1:PodDisruptionBudget"),
        *("secrets-store.csi.x-k8s.io/v1:SecretProviderClass", "storage.k8s.io/v1:StorageClass"),
        "storage.k8s.io/v1:CSIStorageCapacity",
    }
)
"""Resource types that are not charged separately. The resources that they belong to may be charged."""
