"""Rules on dependencies between Azure resources: ranges, versions, tiers, trust."""

import itertools
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network

from voice_blueprint.azure.names import KEDA_SERVICE_ACCOUNT, MODEL_FETCH_SERVICE_ACCOUNT, SERVICE_ACCOUNT_BY_TIER, Role
from voice_stacks.azure.policy.cluster import build_cluster, iter_pool_profiles
from voice_stacks.azure.policy.rules import Stack, Violation, rule, stack_rule
from voice_stacks.azure.policy.values import Value

TRUSTED_SUBJECTS = tuple(
    account.subject
    for account in (KEDA_SERVICE_ACCOUNT, MODEL_FETCH_SERVICE_ACCOUNT, *SERVICE_ACCOUNT_BY_TIER.values())
)
NAT_GATEWAY_OUTBOUND_TYPE = "userAssignedNATGateway"
PRODUCTION_TAG_VALUE = "production"
MIN_SYSTEM_POOL_MAX_PODS = 30
"""Minimum ``maxPods`` that AKS accepts for system pools: https://learn.microsoft.com/azure/aks/use-system-pools.
The API's schema does not contain this limit."""
DAEMONSET_PODS_PER_NODE = 15
"""Number of agents on every node: a dozen DaemonSets of AKS for network, disks, metrics, logs and secrets, and our GPU
DaemonSets. ASSUMED, since AKS does not list them."""
MIN_DISK_GIB = 100


@stack_rule(
    "ranges-nest",
    "Ranges of subnets, pods and services must not overlap, and subnets must be within their network.",
    remedy="choose ranges that do not overlap",
    source="https://learn.microsoft.com/azure/aks/concepts-network-azure-cni-overlay",
)
def check_ranges_do_not_overlap(stack: Stack) -> Iterator[Violation]:
    networks = {
        r.urn: _parse_ranges(r.props.get("addressSpace", "addressPrefixes"))
        for r in stack.find_resources(":VirtualNetwork")
    }
    subnets = [(subnet, _parse_range(subnet.props["addressPrefix"])) for subnet in stack.find_resources(":Subnet")]
    inside = [network for result in networks.values() for network in result]
    for subnet, subnet_range in subnets:
        virtual_networks = [
            n for need in subnet.dependencies.get("virtualNetworkName", ()) for n in networks.get(need, [])
        ]
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
    for cluster in stack.find_resources(":ManagedCluster"):
        profile = cluster.props["networkProfile"]
        own_ranges = {key: _parse_range(profile[key]) for key in ("podCidr", "serviceCidr")}
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
def check_pool_versions_fit_cluster(stack: Stack) -> Iterator[Violation]:
    versions = [cluster.props["kubernetesVersion"].text for cluster in stack.find_resources(":ManagedCluster")]
    newest = max((_parse_version(text) for text in versions if text), default=None)
    for profile in iter_pool_profiles(stack):
        pool_version = profile.props["orchestratorVersion"].text
        if pool_version and newest and _parse_version(pool_version) > newest:
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
def check_nodes_have_egress(stack: Stack) -> Iterator[Violation]:
    gateways = {
        subnet.urn: subnet for subnet in stack.find_resources(":Subnet") if not subnet.props["natGateway"].is_missing
    }
    for cluster in stack.find_resources(":ManagedCluster"):
        if cluster.props.get("networkProfile", "outboundType").text != NAT_GATEWAY_OUTBOUND_TYPE:
            continue
        used = [*cluster.dependencies.get("agentPoolProfiles", ())]
        used += [
            urn for pool in stack.find_resources(":AgentPool") for urn in pool.dependencies.get("vnetSubnetID", ())
        ]
        for subnet in stack.find_resources(":Subnet"):
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
def check_private_cluster_is_reachable(stack: Stack) -> Iterator[Violation]:
    is_accessible = any(stack.find_resources(":BastionHost", ":VirtualNetworkPeering"))
    for cluster in stack.find_resources(":ManagedCluster"):
        private = cluster.props.get("apiServerAccessProfile", "enablePrivateCluster").is_enabled
        if private and any(stack.find_resources(":VirtualNetwork")) and not is_accessible:
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
def check_machines_have_no_public_address(stack: Stack) -> Iterator[Violation]:
    for interface in stack.find_resources(":NetworkInterface"):
        if any(not entry["publicIPAddress"].is_missing for entry in interface.props["ipConfigurations"]):
            yield Violation(interface.urn, f"network interface {interface.name} has a public address")


@stack_rule(
    "private-endpoint-has-its-tier",
    "Registries with a private endpoint must have the Premium SKU.",
    remedy="set the registry's sku to Premium",
    source="https://learn.microsoft.com/azure/container-registry/container-registry-private-link",
)
def check_registry_sku_is_premium(stack: Stack) -> Iterator[Violation]:
    linked_services = {
        urn
        for e in stack.find_resources(":PrivateEndpoint")
        for urn in e.dependencies.get("privateLinkServiceConnections", ())
    }
    for registry in stack.find_resources(":Registry"):
        tier = registry.props.get("sku", "name").text
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
def check_production_data_is_kept(stack: Stack) -> Iterator[Violation]:
    for vault in stack.find_resources(":Vault"):
        is_production = vault.props.get("tags", "environment").text == PRODUCTION_TAG_VALUE
        if is_production and vault.props.get("properties", "enablePurgeProtection").is_disabled:
            yield Violation(
                vault.urn, f"vault {vault.name} of production can be purged: its secrets could be lost permanently"
            )


@rule(
    "trust-is-narrow",
    "Federated credentials must only trust the service accounts of the contract.",
    remedy="use the subject of a service account in blueprint.azure.names",
    source="https://learn.microsoft.com/azure/aks/workload-identity-overview",
)
def check_trusted_subjects_are_known(stack: Stack) -> Iterator[Violation]:
    for credential in stack.find_resources(":FederatedIdentityCredential"):
        subject = credential.props["subject"]
        if not subject.is_unknown and subject.text not in TRUSTED_SUBJECTS:
            yield Violation(
                credential.urn,
                f"{credential.name} trusts {subject.text or 'no account'}, not {' or '.join(TRUSTED_SUBJECTS)}",
            )


@stack_rule(
    "closed-stores-have-endpoints",
    "Registry, key vault and state store must have a private endpoint.",
    remedy="add a private endpoint and its DNS zone",
    source="https://learn.microsoft.com/azure/private-link/private-endpoint-overview",
)
def check_closed_stores_have_endpoints(stack: Stack) -> Iterator[Violation]:
    linked_services = {
        urn
        for e in stack.find_resources(":PrivateEndpoint")
        for urn in e.dependencies.get("privateLinkServiceConnections", ())
    }
    for store in stack.find_resources(":Registry", ":Vault", ":RedisEnterprise"):
        if store.urn not in linked_services:
            yield Violation(store.urn, f"{store.name} has no public access and no private endpoint")


@stack_rule(
    "control-plane-assigns-kubelet",
    "The control plane's identity must have the role Managed Identity Operator on the kubelet's identity.",
    remedy="assign the role on the kubelet's identity to the identity of the cluster",
    source="https://learn.microsoft.com/azure/aks/use-managed-identity",
)
def check_kubelet_identity_has_operator(stack: Stack) -> Iterator[Violation]:
    for cluster in stack.find_resources(":ManagedCluster"):
        kubelet, control = (set(cluster.dependencies.get(key, ())) for key in ("identityProfile", "identity"))
        if kubelet and not any(
            assignment.props["roleDefinitionId"].text.lower().endswith(Role.MANAGED_IDENTITY_OPERATOR)
            and control & set(assignment.dependencies.get("principalId", ()))
            and kubelet & set(assignment.dependencies.get("scope", ()))
            for assignment in stack.find_resources(":RoleAssignment")
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
def check_pools_fit_pods_and_images(stack: Stack) -> Iterator[Violation]:
    served = build_cluster(stack).group_pods_by_pool()
    for profile in iter_pool_profiles(stack):
        props, urn, name = profile.props, profile.resource.urn, profile.name
        engines = max((pod.max_pods_per_node for pod in served.get(name, [])), default=0)
        for key, minimum, reason in (
            ("maxPods", MIN_SYSTEM_POOL_MAX_PODS, "AKS rejects system pools with fewer")
            if profile.is_system
            else (
                "maxPods",
                DAEMONSET_PODS_PER_NODE + engines,
                f"{DAEMONSET_PODS_PER_NODE} agents and {engines} engines run on a node",
            ),
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
def check_autoscaler_waits_for_drain(stack: Stack) -> Iterator[Violation]:
    azure = stack.deployment.azure_section if stack.deployment else None
    longest = max((service.drain_timeout_s for service in azure.services), default=0) if azure else 0
    for cluster in stack.find_resources(":ManagedCluster"):
        waits = cluster.props.get("autoScalerProfile", "maxGracefulTerminationSec").text
        if waits.isdecimal() and int(waits) < longest:
            yield Violation(
                cluster.urn, f"the autoscaler of {cluster.name} kills pods after {waits} s; one drains for {longest} s"
            )


def _parse_range(value: Value) -> IPv4Network | None:
    try:
        return IPv4Network(value.text) if value.text else None
    except ValueError:
        return None


def _parse_ranges(values: Value) -> list[IPv4Network]:
    return [result for value in values if (result := _parse_range(value))]


def _parse_version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdecimal())
