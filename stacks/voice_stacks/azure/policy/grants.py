"""Rules on the add-ons, extensions, metric collection and DNS names that workloads need from a cluster."""

import re
from collections.abc import Iterator

from voice_blueprint.azure.names import list_caller_tiers
from voice_blueprint.capacity.bounds import EDGE_INSTANCES
from voice_blueprint.file.model.azure import AggregatedService, Azure, PrefillDecodeCell
from voice_stacks.azure.policy.rules import Resource, Stack, Violation, stack_rule

MIN_NODE_PROVISION_MINUTES = 15
"""Minimum time for a new node, which is the autoscaler's default. A GPU node becomes ready after its driver is
installed."""
NETWORK_POLICY_ENGINES = {"cilium", "azure", "calico"}
STORAGE_SERVICE = "Microsoft.Storage"
LOCAL_DISKS_EXTENSION = "microsoft.azurecontainerstoragev2"
METRICS_STREAM = "Microsoft-PrometheusMetrics"
CLUSTER_DOCS_URL = "https://learn.microsoft.com/azure/aks/integrations"


@stack_rule(
    "cluster-grants-what-runs",
    "A cluster must have the add-ons, network policies and metrics collection that its workloads require.",
    remedy="enable what is missing: KEDA, metrics, the key vault's driver, workload identity, network policies",
    source=CLUSTER_DOCS_URL,
)
def check_cluster_has_required_addons(stack: Stack) -> Iterator[Violation]:
    azure = stack.azure
    for cluster in stack.find_resources(":ManagedCluster") if azure else ():
        if azure:
            for problem in (*_find_missing_add_ons(cluster, azure), *_find_missing_prerequisites(stack, azure)):
                yield Violation(cluster.urn, f"cluster {cluster.name} {problem}")


def _find_missing_add_ons(cluster: Resource, azure: Azure) -> Iterator[str]:
    props = cluster.props
    if props.get("workloadAutoScalerProfile", "keda", "enabled").is_disabled:
        yield "has no KEDA: workloads are not scaled"
    if props.get("azureMonitorProfile", "metrics", "enabled").is_disabled:
        yield "has no managed Prometheus: scaling and alerts have no metrics"
    reads_vault = bool(list_caller_tiers(azure) or azure.hub_token_secret)
    if reads_vault and props.get("addonProfiles", "azureKeyvaultSecretsProvider", "enabled").is_disabled:
        yield "has no key vault driver: pods that mount a secret never start"
    if props.get("securityProfile", "workloadIdentity", "enabled").is_disabled:
        yield "has no workload identity: pods cannot sign in to Azure"
    policy = props.get("networkProfile", "networkPolicy")
    if not policy.is_unknown and policy.text not in NETWORK_POLICY_ENGINES:
        yield f'enforces no network policy ("{policy.text or "none"}"): every pod can reach every other one'
    waits = re.fullmatch(r"(\d+)m", props.get("autoScalerProfile", "maxNodeProvisionTime").text or "15m")
    if waits and int(waits[1]) < MIN_NODE_PROVISION_MINUTES:
        yield f"gives up a node after {waits[0]}, but installing a GPU driver takes longer"


def _find_missing_prerequisites(stack: Stack, azure: Azure) -> Iterator[str]:
    services = [each for each in azure.services if isinstance(each, AggregatedService | PrefillDecodeCell)]
    uses_nvme = any(each.lmcache and each.lmcache.l2_nvme_gib for each in services)
    if uses_nvme and not any(
        each.props["extensionType"].text == LOCAL_DISKS_EXTENSION for each in stack.find_resources(":Extension")
    ):
        yield "has no Container Storage: volumes on local disks are never created"
    collected = {
        need
        for association in stack.find_resources(":DataCollectionRuleAssociation")
        for need in association.dependencies.get("dataCollectionRuleId", ())
    }
    rules = [
        rule
        for rule in stack.find_resources(":DataCollectionRule")
        if any(METRICS_STREAM in {s.text for s in flow["streams"]} for flow in rule.props["dataFlows"])
    ]
    if rules and not any(rule.urn in collected for rule in rules):
        yield "is not associated with a rule that collects Prometheus metrics"
    used = {urn for pool in stack.find_resources(":AgentPool") for urn in pool.dependencies.get("vnetSubnetID", ())}
    for subnet in stack.find_resources(":Subnet"):
        if subnet.urn in used and STORAGE_SERVICE not in {
            each["service"].text for each in subnet.props["serviceEndpoints"]
        }:
            yield f"has nodes in subnet {subnet.name}, which cannot reach the NFS share of the model cache"


@stack_rule(
    "closed-stores-have-names",
    "Every private endpoint must have a DNS zone group, and every zone must be linked to a network.",
    remedy="add a private DNS zone group to the endpoint, and link the zone to the virtual network",
    source="https://learn.microsoft.com/azure/private-link/private-endpoint-dns",
)
def check_private_endpoints_have_dns(stack: Stack) -> Iterator[Violation]:
    endpoints_with_zone = {
        urn
        for group in stack.find_resources(":PrivateDnsZoneGroup")
        for urn in group.dependencies.get("privateEndpointName", ())
    }
    for endpoint in stack.find_resources(":PrivateEndpoint"):
        if endpoint.urn not in endpoints_with_zone:
            yield Violation(
                endpoint.urn,
                f"private endpoint {endpoint.name} has no DNS zone group: its name resolves to the public address",
            )
    linked = {
        urn
        for link in stack.find_resources(":VirtualNetworkLink")
        for urn in link.dependencies.get("privateZoneName", ())
    }
    for zone in stack.find_resources(":PrivateZone"):
        if zone.urn not in linked:
            yield Violation(zone.urn, f"private zone {zone.name} is not linked to a network: its names do not resolve")


@stack_rule(
    "edge-carries-the-load",
    "The autoscaling bounds of an application gateway must be those that the plan assumes.",
    remedy=f"set autoscaleConfiguration to {EDGE_INSTANCES[0]} to {EDGE_INSTANCES[1]}",
    source="voice_blueprint/capacity",
)
def check_edge_scaling_matches_plan(stack: Stack) -> Iterator[Violation]:
    for edge in stack.find_resources(":ApplicationGateway"):
        scale = edge.props["autoscaleConfiguration"]
        low, high = scale["minCapacity"].number, scale["maxCapacity"].number
        if (low or 0) < EDGE_INSTANCES[0] or (high is not None and high < EDGE_INSTANCES[1]):
            yield Violation(
                edge.urn, f"{edge.name} has {low or 0:g} to {high or 0:g} instances; the plan assumes {EDGE_INSTANCES}"
            )
