"""Rules on the cluster's project: inbound traffic, identities and roles, drain timeouts."""

from collections.abc import Iterator
from ipaddress import ip_network

from voice_blueprint.azure.contract import Component
from voice_blueprint.azure.names import (
    KEDA_SERVICE_ACCOUNT,
    SERVICE_ACCOUNT_BY_TIER,
    VAULT_TIERS,
    Role,
    list_caller_tiers,
    list_service_pool_names,
)
from voice_blueprint.azure.ranges import calculate_infrastructure_ranges, calculate_nodes_range
from voice_blueprint.azure.rollout import (
    DEFAULT_DRAIN_MINUTES,
    ENGINE_STARTUP_TIMEOUT_S,
    calculate_max_node_drain_s,
    calculate_max_pods_per_node,
)
from voice_blueprint.file.model.azure import CPU_POOL_NAME, Azure
from voice_stacks.azure.policy.callers import HEALTH_PORT_BY_COMPONENT
from voice_stacks.azure.policy.cluster import PoolProfile, iter_pool_profiles
from voice_stacks.azure.policy.rules import Resource, Stack, Violation, stack_rule


@stack_rule(
    "network-lets-callers-in",
    "Network security groups must allow the contract's inbound flows to the edge, nodes and state store.",
    remedy="add an allow rule for the flow with a higher priority than the rule that denies all other traffic",
    source="https://learn.microsoft.com/azure/virtual-network/network-security-groups-overview",
)
def check_network_admits_callers(stack: Stack) -> Iterator[Violation]:
    azure, groups = stack.azure, list(stack.find_resources(":NetworkSecurityGroup"))
    if azure is None or azure.callers is None or not groups:
        return
    for source, to, port, protocol in _iter_inbound_traffic(stack, azure):
        subnets = [subnet for subnet in stack.find_resources(":Subnet") if subnet.props["addressPrefix"].text == to]
        for group in groups:
            guards = any(group.urn in subnet.dependencies.get("networkSecurityGroup", ()) for subnet in subnets)
            if guards and not _allows_packet(group, source, str(port), protocol):
                yield Violation(group.urn, f"{group.name} denies {source} on port {port} of {to}")


def _iter_inbound_traffic(stack: Stack, azure: Azure) -> Iterator[tuple[str, str, int, str]]:
    """Yield the traffic that subnets must admit, as tuples of source, subnet range, port and protocol."""
    ranges, nodes = calculate_infrastructure_ranges(azure.network.cidr), calculate_nodes_range(azure.network.cidr)
    sources = {Component.EDGE: ranges.edge, Component.INTERNET: "Internet"}
    for flow in stack.flows:
        port, protocol = flow.port.number, flow.port.protocol
        if flow.destination is Component.STATE:
            yield nodes, ranges.endpoints, port, protocol
        elif flow.source in sources and flow.destination in {Component.EDGE, *SERVICE_ACCOUNT_BY_TIER}:
            yield sources[flow.source], ranges.edge if flow.destination is Component.EDGE else nodes, port, protocol
    for tier in list_caller_tiers(azure):
        if tier.value in HEALTH_PORT_BY_COMPONENT:
            yield "AzureLoadBalancer", nodes, HEALTH_PORT_BY_COMPONENT[tier.value].number, "tcp"


def _allows_packet(group: Resource, source: str, port: str, protocol: str) -> bool:
    """Return True if the first rule that matches a packet in a security group allows the packet."""
    inbound = [entry for entry in group.props["securityRules"] if entry["direction"].text == "Inbound"]
    for entry in sorted(inbound, key=lambda entry: entry["priority"].number or 0):
        prefix = entry["sourceAddressPrefix"].text
        ports = {entry["destinationPortRange"].text, *(each.text for each in entry["destinationPortRanges"])}
        matches_port = entry["protocol"].text.lower() in {protocol, "*"} and ports & {port, "*"}
        if matches_port and (prefix in {"*", source} or _contains_range(source, prefix)):
            return entry["access"].text == "Allow"
    return False


def _contains_range(source: str, prefix: str) -> bool:
    try:
        return ip_network(source).subnet_of(ip_network(prefix))  # type: ignore[arg-type]
    except ValueError:
        return False


@stack_rule(
    "identities-may-work",
    "Every identity must have its federated credential, role assignment and access policy assignment.",
    remedy="add the federated credential, the role assignment, or the access policy assignment",
    source="https://learn.microsoft.com/azure/aks/workload-identity-overview",
)
def check_identities_have_permissions(stack: Stack) -> Iterator[Violation]:
    azure = stack.azure
    clusters = list(stack.find_resources(":ManagedCluster"))
    if azure is None or not clusters:
        return
    urn = clusters[0].urn
    tiers = list_caller_tiers(azure)
    trusted = {each.props["subject"].text for each in stack.find_resources(":FederatedIdentityCredential")}
    for account in (KEDA_SERVICE_ACCOUNT, *(SERVICE_ACCOUNT_BY_TIER[tier] for tier in tiers)):
        if account.subject not in trusted:
            yield Violation(urn, f"no identity trusts {account.subject}: its pods get no token")
    users = {
        urn for each in stack.find_resources(":AccessPolicyAssignment") for urn in each.dependencies.get("user", ())
    }
    identities = {identity.name for identity in stack.find_resources(":UserAssignedIdentity") if identity.urn in users}
    for tier in tiers:
        if tier.value not in identities:
            yield Violation(urn, f"tier {tier.value} has no access policy assignment on the state store")
    needed = {"keda": Role.MONITORING_DATA_READER, "grafana": Role.MONITORING_DATA_READER}
    needed |= {tier.value: Role.KEY_VAULT_SECRETS_USER for tier in tiers if tier in VAULT_TIERS}
    needed |= {"edge": Role.KEY_VAULT_SECRETS_USER} if azure.callers else {}
    for identity in stack.find_resources(":UserAssignedIdentity"):
        role = needed.get(identity.name)
        if role and not any(
            grant.props["roleDefinitionId"].text.lower().endswith(role)
            and identity.urn in grant.dependencies.get("principalId", ())
            for grant in stack.find_resources(":RoleAssignment")
        ):
            yield Violation(identity.urn, f"identity {identity.name} lacks the role {role.name}")


@stack_rule(
    "pools-drain-long-enough",
    "The drain timeout of a node pool must be enough to evict all pods of a node within their disruption budgets.",
    remedy="raise upgradeSettings.drainTimeoutInMinutes",
    source="https://learn.microsoft.com/azure/aks/upgrade-aks-cluster#set-node-drain-timeout-value",
)
def check_pools_drain_long_enough(stack: Stack) -> Iterator[Violation]:
    azure = stack.azure
    for profile in iter_pool_profiles(stack) if azure else ():
        minutes = profile.props.get("upgradeSettings", "drainTimeoutInMinutes").number or DEFAULT_DRAIN_MINUTES
        for needed_s, reason in _iter_drain_times(azure, profile) if azure else ():
            if minutes * 60 < needed_s:
                yield Violation(
                    profile.resource.urn,
                    f"pool {profile.name} has a drain timeout of {minutes:g} min; {reason} {needed_s} s",
                )


def _iter_drain_times(azure: Azure, profile: PoolProfile) -> Iterator[tuple[int, str]]:
    """Yield, for each workload, the time that a node of the pool needs to drain, and the beginning of a message."""
    if profile.is_system and azure.services:
        yield max(service.drain_timeout_s for service in azure.services), "the router on it drains for"
    if profile.name == CPU_POOL_NAME:
        if azure.callers:
            yield azure.callers.vad.drain_timeout_s, "a pod of vad drains for"
            yield azure.callers.asr.drain_timeout_s, "a pod of asr drains for"
        if azure.agents:
            yield azure.agents.drain_timeout_s, "a pod of agent drains for"
    for pool in azure.pools:
        for service in azure.services if pool.name == profile.name else ():
            if pool.name in list_service_pool_names(service):
                count = calculate_max_pods_per_node(service, pool)
                reason = (
                    f"{count} {'pod' if count == 1 else 'pods'} of {service.name} on a node, each of which may take "
                    f"{ENGINE_STARTUP_TIMEOUT_S} s to be replaced, are evicted within"
                )
                yield calculate_max_node_drain_s(service, pool), reason
