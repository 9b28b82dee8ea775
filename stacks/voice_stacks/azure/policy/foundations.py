"""Rules on dependencies between Azure resources: ranges, versions, tiers, trust."""

import itertools
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network

from voice_blueprint.azure.names import CALLER_ACCOUNTS, KEDA_SERVICE_ACCOUNT, MODEL_FETCH_SERVICE_ACCOUNT, Role
from voice_stacks.azure.policy.cluster import cluster_for, profiles
from voice_stacks.azure.policy.rules import Stack, Violation, rule, stack_rule
from voice_stacks.azure.policy.values import Value

TRUSTED = tuple(
    account.subject for account in (KEDA_SERVICE_ACCOUNT, MODEL_FETCH_SERVICE_ACCOUNT, *CALLER_ACCOUNTS.values())
)
NAT_OUTBOUND = "userAssignedNATGateway"
PRODUCTION = "production"
SYSTEM_PODS = 30
"""Minimum of ``maxPods`` that AKS accepts for system pools: https://learn.microsoft.com/azure/aks/use-system-pools.
The API's schema does not contain this limit."""
AGENTS = 15
"""Number of agents on every node: a dozen DaemonSets of AKS for network, disks, metrics, logs and secrets, and ours for
GPUs. ASSUMED, since AKS does not list them."""
MIN_DISK_GIB = 100


@stack_rule(
    "ranges-nest",
    "Ranges of subnets, pods and services must not overlap, and subnets must be within their network.",
    remedy="choose ranges that do not overlap",
    source="https://learn.microsoft.com/azure/aks/concepts-network-azure-cni-overlay",
)
def ranges_nest(stack: Stack) -> Iterator[Violation]:
    networks = {r.urn: _ranges(r.props.at("addressSpace", "addressPrefixes")) for r in stack.of(":VirtualNetwork")}
    subnets = [(subnet, _range(subnet.props["addressPrefix"])) for subnet in stack.of(":Subnet")]
    inside = [network for result in networks.values() for network in result]
    for subnet, subnet_range in subnets:
        virtual_networks = [n for need in subnet.needs.get("virtualNetworkName", ()) for n in networks.get(need, [])]
        if (
            subnet_range
            and virtual_networks
            and not any(subnet_range.subnet_of(network) for network in virtual_networks)
        ):
            yield Violation(
                subnet.urn, f"subnet {subnet.name} {subnet_range} is outside of {', '.join(map(str, virtual_networks))}"
            )
    for (one, first), (other, second) in itertools.combinations(subnets, 2):
        if first and second and first.overlaps(second):
            yield Violation(other.urn, f"subnet {other.name} {second} overlaps {one.name} {first}")
    for cluster in stack.of(":ManagedCluster"):
        profile = cluster.props["networkProfile"]
        own_ranges = {key: _range(profile[key]) for key in ("podCidr", "serviceCidr")}
        for key, subnet_range in own_ranges.items():
            for network in inside:
                if subnet_range and subnet_range.overlaps(network):
                    yield Violation(
                        cluster.urn, f"{key} {subnet_range} of cluster {cluster.name} overlaps its network {network}"
                    )
        services, dns = own_ranges["serviceCidr"], profile["dnsServiceIP"].text
        if services and dns and IPv4Address(dns) not in services:
            yield Violation(
                cluster.urn, f"dnsServiceIP {dns} of cluster {cluster.name} is not in serviceCidr {services}"
            )


@stack_rule(
    "pools-follow-their-cluster",
    "A node pool must not have a newer Kubernetes version than its cluster.",
    remedy="upgrade the cluster first",
    source="https://learn.microsoft.com/azure/aks/manage-node-pools",
)
def pools_follow_cluster(stack: Stack) -> Iterator[Violation]:
    versions = [cluster.props["kubernetesVersion"].text for cluster in stack.of(":ManagedCluster")]
    newest = max((_version(text) for text in versions if text), default=None)
    for profile in profiles(stack):
        pool_version = profile.props["orchestratorVersion"].text
        if pool_version and newest and _version(pool_version) > newest:
            yield Violation(
                profile.resource.urn,
                f"pool {profile.name} has Kubernetes {pool_version}; its cluster has {', '.join(versions)}",
            )


@stack_rule(
    "nodes-have-a-way-out",
    "A subnet whose nodes use a NAT gateway for outbound traffic must have one.",
    remedy="attach the gateway to the subnet",
    source="https://learn.microsoft.com/azure/aks/nat-gateway",
)
def nodes_have_egress(stack: Stack) -> Iterator[Violation]:
    gateways = {subnet.urn: subnet for subnet in stack.of(":Subnet") if not subnet.props["natGateway"].missing}
    for cluster in stack.of(":ManagedCluster"):
        if cluster.props.at("networkProfile", "outboundType").text != NAT_OUTBOUND:
            continue
        used = [*cluster.needs.get("agentPoolProfiles", ())]
        used += [urn for pool in stack.of(":AgentPool") for urn in pool.needs.get("vnetSubnetID", ())]
        for subnet in stack.of(":Subnet"):
            if subnet.urn in used and subnet.urn not in gateways:
                yield Violation(
                    subnet.urn,
                    f"nodes in subnet {subnet.name} use a NAT gateway for outbound traffic, but the subnet has none",
                )


@stack_rule(
    "cluster-reachable-by-operators",
    "The network of a private API server must have a Bastion host or a peering.",
    remedy="set access in the deployment file",
    source="https://learn.microsoft.com/azure/aks/private-clusters#options-for-connecting-to-the-private-cluster",
)
def cluster_has_administrators(stack: Stack) -> Iterator[Violation]:
    is_accessible = any(stack.of(":BastionHost", ":VirtualNetworkPeering"))
    for cluster in stack.of(":ManagedCluster"):
        private = cluster.props.at("apiServerAccessProfile", "enablePrivateCluster").on
        if private and any(stack.of(":VirtualNetwork")) and not is_accessible:
            yield Violation(
                cluster.urn,
                f"the private API server of {cluster.name} cannot be reached: its network has no Bastion host and "
                "no peering",
            )


@rule(
    "machines-are-inside",
    "Network interfaces must not have public addresses.",
    remedy="remove publicIPAddress; use Bastion to access the machine",
    source="https://learn.microsoft.com/azure/bastion/bastion-overview",
)
def machines_have_no_public_address(stack: Stack) -> Iterator[Violation]:
    for interface in stack.of(":NetworkInterface"):
        if any(not entry["publicIPAddress"].missing for entry in interface.props["ipConfigurations"]):
            yield Violation(interface.urn, f"network interface {interface.name} has a public address")


@stack_rule(
    "private-endpoint-has-its-tier",
    "Registries with a private endpoint must have the Premium SKU.",
    remedy="set the registry's sku to Premium",
    source="https://learn.microsoft.com/azure/container-registry/container-registry-private-link",
)
def endpoints_have_their_tier(stack: Stack) -> Iterator[Violation]:
    linked_services = {
        urn for e in stack.of(":PrivateEndpoint") for urn in e.needs.get("privateLinkServiceConnections", ())
    }
    for registry in stack.of(":Registry"):
        tier = registry.props.at("sku", "name").text
        if registry.urn in linked_services and tier != "Premium":
            yield Violation(
                registry.urn, f"registry {registry.name} has the SKU {tier}; its private endpoint requires Premium"
            )


@rule(
    "production-data-is-kept",
    "The key vault of a production deployment must have purge protection.",
    remedy="set enablePurgeProtection",
    source="https://learn.microsoft.com/azure/key-vault/general/soft-delete-overview",
)
def production_data_is_kept(stack: Stack) -> Iterator[Violation]:
    for vault in stack.of(":Vault"):
        is_production = vault.props.at("tags", "environment").text == PRODUCTION
        if is_production and vault.props.at("properties", "enablePurgeProtection").off:
            yield Violation(
                vault.urn, f"vault {vault.name} of production can be purged: its secrets could be lost permanently"
            )


@rule(
    "trust-is-narrow",
    "Federated credentials must only trust the service accounts of the contract.",
    remedy="use the subject of a service account in blueprint.azure.names",
    source="https://learn.microsoft.com/azure/aks/workload-identity-overview",
)
def trust_is_narrow(stack: Stack) -> Iterator[Violation]:
    for credential in stack.of(":FederatedIdentityCredential"):
        subject = credential.props["subject"]
        if not subject.unknown and subject.text not in TRUSTED:
            yield Violation(
                credential.urn, f"{credential.name} trusts {subject.text or 'no account'}, not {' or '.join(TRUSTED)}"
            )


@stack_rule(
    "closed-stores-have-endpoints",
    "Registry, key vault and state store must have a private endpoint.",
    remedy="add a private endpoint and its DNS zone",
    source="https://learn.microsoft.com/azure/private-link/private-endpoint-overview",
)
def closed_stores_have_endpoints(stack: Stack) -> Iterator[Violation]:
    linked_services = {
        urn for e in stack.of(":PrivateEndpoint") for urn in e.needs.get("privateLinkServiceConnections", ())
    }
    for store in stack.of(":Registry", ":Vault", ":RedisEnterprise"):
        if store.urn not in linked_services:
            yield Violation(store.urn, f"{store.name} has no public access and no private endpoint")


@stack_rule(
    "control-plane-assigns-kubelet",
    "The control plane's identity must have the role Managed Identity Operator on the kubelet's identity.",
    remedy="assign the role on the kubelet's identity to the identity of the cluster",
    source="https://learn.microsoft.com/azure/aks/use-managed-identity",
)
def control_plane_assigns_kubelet(stack: Stack) -> Iterator[Violation]:
    for cluster in stack.of(":ManagedCluster"):
        kubelet, control = (set(cluster.needs.get(key, ())) for key in ("identityProfile", "identity"))
        if kubelet and not any(
            assignment.props["roleDefinitionId"].text.lower().endswith(Role.MANAGED_IDENTITY_OPERATOR)
            and control & set(assignment.needs.get("principalId", ()))
            and kubelet & set(assignment.needs.get("scope", ()))
            for assignment in stack.of(":RoleAssignment")
        ):
            yield Violation(
                cluster.urn,
                f"the control plane of {cluster.name} cannot assign its kubelet's identity: no node starts",
            )


@rule(
    "pools-can-work",
    "Every node pool must have enough maxPods and disk space for its pods and images.",
    remedy="raise the pool's maxPods or osDiskSizeGB",
    source="https://learn.microsoft.com/azure/aks/use-system-pools",
)
def pool_settings_are_valid(stack: Stack) -> Iterator[Violation]:
    served = cluster_for(stack).pods_by_pool()
    for profile in profiles(stack):
        props, urn, name = profile.props, profile.resource.urn, profile.name
        engines = max((pod.per_node for pod in served.get(name, [])), default=0)
        for key, minimum, reason in (
            ("maxPods", SYSTEM_PODS, "AKS rejects system pools with fewer")
            if profile.system
            else ("maxPods", AGENTS + engines, f"{AGENTS} agents and {engines} engines run on a node"),
            ("osDiskSizeGB", MIN_DISK_GIB, "one inference image unpacks to about 30 GiB"),
        ):
            actual = props[key].number
            if actual is not None and actual < minimum:
                yield Violation(urn, f"pool {name}: {key} {actual:g} is below {minimum}; {reason}")


@stack_rule(
    "autoscaler-waits-for-drain",
    "The cluster autoscaler must wait for the longest drain of any service.",
    remedy="raise maxGracefulTerminationSec",
    source="https://learn.microsoft.com/azure/aks/cluster-autoscaler",
)
def autoscaler_waits_for_drain(stack: Stack) -> Iterator[Violation]:
    azure = stack.deployment.azure_section if stack.deployment else None
    longest = max((service.drain_timeout_s for service in azure.services), default=0) if azure else 0
    for cluster in stack.of(":ManagedCluster"):
        waits = cluster.props.at("autoScalerProfile", "maxGracefulTerminationSec").text
        if waits.isdecimal() and int(waits) < longest:
            yield Violation(
                cluster.urn, f"the autoscaler of {cluster.name} kills pods after {waits} s; one drains for {longest} s"
            )


def _range(value: Value) -> IPv4Network | None:
    try:
        return IPv4Network(value.text) if value.text else None
    except ValueError:
        return None


def _ranges(values: Value) -> list[IPv4Network]:
    return [result for value in values if (result := _range(value))]


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdecimal())
