"""Rejections by AKS for a cluster's network: ranges, plugins, outbound type, subnets."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network

from voice_sandbox.azure.refusals.clusters import CLUSTER, POOL
from voice_sandbox.azure.refusals.request import Request, RequestPart
from voice_sandbox.azure.refusals.roles import Role, find_principal_ids, is_role_granted
from voice_sandbox.azure.refusals.row import (
    BAD_REQUEST,
    RejectionRule,
    allow_only,
    combine_conditions,
    forbid,
    has_value,
    negate,
    require,
)
from voice_sandbox.azure.refusals.sources import AZURERM_DOCS, LEARN_URL

SUBNET = "network:Subnet"
_AKS_DOCS = f"{LEARN_URL}/aks"
_CLUSTER_DOCS = f"{AZURERM_DOCS}/kubernetes_cluster.html.markdown"
_RESERVED_RANGES = tuple(map(IPv4Network, ("169.254.0.0/16", "172.30.0.0/16", "172.31.0.0/16", "192.0.2.0/24")))
_MAX_INVALID_SERVICE_PREFIX_LENGTH = 12
_USES_CILIUM = has_value("networkProfile.networkDataplane", "cilium")


def _parse_range(body: RequestPart, path: str) -> IPv4Network | None:
    try:
        return IPv4Network(body.get_text(path), strict=False)
    except ValueError:
        return None


def _iter_cluster_subnets(request: Request) -> Iterator[tuple[RequestPart, IPv4Network]]:
    """Yield the existing subnets in the cluster's network, with their ranges."""
    for pool in request.body.get_parts("agentPoolProfiles"):
        network = pool.get_text("vnetSubnetID").lower().rpartition("/subnets/")[0]
        for resource, subnet in request.iter_existing_resources(SUBNET):
            prefix = _parse_range(subnet, "addressPrefix")
            if prefix and network and (resource.id or "").lower().startswith(f"{network}/"):
                yield subnet, prefix


def _find_node_subnet(request: Request) -> RequestPart | None:
    ids = [pool.get_text("vnetSubnetID") for pool in request.body.get_parts("agentPoolProfiles")]
    return request.find_by_id(SUBNET, ids[0]) if ids else None


def _find_service_overlap_problems(request: Request) -> Iterator[str]:
    services = _parse_range(request.body, "networkProfile.serviceCidr")
    for subnet, prefix in _iter_cluster_subnets(request):
        if services and services.overlaps(prefix):
            yield f"networkProfile.serviceCidr is {services}, subnet {subnet.get_text('subnetName')} {prefix}"


def _find_pod_overlap_problems(request: Request) -> Iterator[str]:
    pods, services = (_parse_range(request.body, f"networkProfile.{name}") for name in ("podCidr", "serviceCidr"))
    others = [(f"subnet {subnet.get_text('subnetName')}", prefix) for subnet, prefix in _iter_cluster_subnets(request)]
    for name, other in [*others, *([("serviceCidr", services)] if services else [])]:
        if pods and pods.overlaps(other):
            yield f"networkProfile.podCidr is {pods}, {name} {other}"


def _find_reserved_range_problems(request: Request) -> Iterator[str]:
    ranges = [(name, _parse_range(request.body, f"networkProfile.{name}")) for name in ("podCidr", "serviceCidr")]
    ranges += [(f"subnet {subnet.get_text('subnetName')}", prefix) for subnet, prefix in _iter_cluster_subnets(request)]
    for name, value in ranges:
        for reserved in _RESERVED_RANGES:
            if value and value.overlaps(reserved):
                yield f"{name} {value} overlaps {reserved}"


def _find_service_size_problems(request: Request) -> Iterator[str]:
    services = _parse_range(request.body, "networkProfile.serviceCidr")
    if services and services.prefixlen <= _MAX_INVALID_SERVICE_PREFIX_LENGTH:
        yield f"networkProfile.serviceCidr is {services}"


def _find_dns_address_problems(request: Request) -> Iterator[str]:
    services, text = (
        _parse_range(request.body, "networkProfile.serviceCidr"),
        request.body.get_text("networkProfile.dnsServiceIP"),
    )
    if services and text:
        address = IPv4Address(text)
        if address not in services or address == services[1]:
            yield f"networkProfile.dnsServiceIP is {address}, serviceCidr {services}"


def _find_outbound_type_problems(request: Request) -> Iterator[str]:
    subnet = _find_node_subnet(request)
    by_gateway = has_value("networkProfile.outboundType", "userAssignedNATGateway")(request.body)
    if subnet and by_gateway and not subnet.get("natGateway.id"):
        yield f"subnet {subnet.get_text('subnetName')} has no natGateway"


def _find_delegated_subnet_problems(request: Request) -> Iterator[str]:
    subnet = request.find_by_id(SUBNET, request.body.get_text("vnetSubnetID"))
    if subnet and (delegations := subnet.get_parts("delegations")):
        yield f"{request.body.to_full_path('vnetSubnetID')} refers to a subnet that is delegated to " + ", ".join(
            each.get_text("serviceName") for each in delegations
        )


def _find_subnet_role_problems(request: Request) -> Iterator[str]:
    identities = find_principal_ids(request, request.body.get_texts("identity.userAssignedIdentities"))
    for pool in request.body.get_parts("agentPoolProfiles"):
        subnet = pool.get_text("vnetSubnetID")
        if (
            subnet
            and identities
            and not is_role_granted(request, identities, subnet, Role.NETWORK_CONTRIBUTOR, Role.CONTRIBUTOR)
        ):
            yield f"the control plane's identity has no such role on {subnet.rpartition('/')[2]} at that time"


REJECTION_RULES = (
    RejectionRule(
        "service-range-overlaps-subnet", CLUSTER, "ServiceCidrOverlapExistingSubnetsCidr",
        "The specified service CIDR is conflicted with an existing subnet CIDR",
        _find_service_overlap_problems, "choose another azure.network.service_cidr", "https://github.com/Azure/AKS/issues/1117",
    ),
    RejectionRule(
        "pod-range-overlaps", CLUSTER, BAD_REQUEST, "The pod CIDR must not overlap with subnets and services",
        _find_pod_overlap_problems, "choose another azure.network.pod_cidr",
        f"{_AKS_DOCS}/concepts-network-azure-cni-overlay#pods",
    ),
    RejectionRule(
        "reserved-ranges", CLUSTER, BAD_REQUEST,
        "Pods, services and the virtual network can't use ranges that AKS reserves",
        _find_reserved_range_problems, "choose another range in azure.network",
        f"{_AKS_DOCS}/concepts-network-cni-overview#aks-cni-networking-prerequisites",
    ),
    RejectionRule(
        "service-range-size", CLUSTER, BAD_REQUEST, "The service CIDR must be smaller than /12",
        _find_service_size_problems, "use a /16 as azure.network.service_cidr", f"{_AKS_DOCS}/use-byo-cni",
    ),
    RejectionRule(
        "dns-service-address", CLUSTER, BAD_REQUEST,
        "The DNS service IP must be within the service CIDR range and must not be its first address",
        _find_dns_address_problems, "use the tenth address of the range", f"{_AKS_DOCS}/use-byo-cni",
    ),
    RejectionRule(
        "dataplane-plugin", CLUSTER, BAD_REQUEST, "The data plane cilium requires the network plugin azure",
        allow_only("networkProfile.networkPlugin", "azure", when=_USES_CILIUM),
        "set networkPlugin to azure", f"{_CLUSTER_DOCS}#L689",
    ),
    RejectionRule(
        "policy-without-dataplane", CLUSTER, BAD_REQUEST, "The network policy cilium requires the data plane cilium",
        require("networkProfile.networkDataplane", "cilium", when=has_value("networkProfile.networkPolicy", "cilium")),
        "set networkDataplane to cilium", f"{_CLUSTER_DOCS}#L681",
    ),
    RejectionRule(
        "pod-range-without-overlay", CLUSTER, BAD_REQUEST, "A pod CIDR is only supported in overlay mode",
        forbid("networkProfile.podCidr", when=combine_conditions(
            has_value("networkProfile.networkPlugin", "azure"),
            negate(has_value("networkProfile.networkPluginMode", "overlay")),
        )),
        "set networkPluginMode to overlay", f"{_CLUSTER_DOCS}#L667",
    ),
    RejectionRule(
        "outbound-gateway", CLUSTER, BAD_REQUEST, "The NAT gateway must exist before the cluster is created",
        _find_outbound_type_problems, "set natGateway of the subnet", f"{_AKS_DOCS}/egress-outboundtype",
    ),
    RejectionRule(
        "outbound-of-own-network", CLUSTER, BAD_REQUEST, "The outbound type is for virtual networks that AKS manages",
        allow_only(
            "networkProfile.outboundType", "loadBalancer", "userAssignedNATGateway", "userDefinedRouting", "none",
            when=lambda body: any(pool.get_text("vnetSubnetID") for pool in body.get_parts("agentPoolProfiles")),
        ),
        "use userAssignedNATGateway or userDefinedRouting", f"{_AKS_DOCS}/egress-outboundtype",
    ),
    RejectionRule(
        "subnet-is-delegated", POOL, "SubnetIsDelegated", "A delegated subnet cannot be used for nodes",
        _find_delegated_subnet_problems, "use a subnet without delegations", "https://github.com/MicrosoftDocs/azure-docs/issues/69774",
    ),
    RejectionRule(
        "basic-load-balancer", CLUSTER, BAD_REQUEST, "AKS no longer supports the Basic SKU load balancer",
        allow_only("networkProfile.loadBalancerSku", "standard"),
        "set loadBalancerSku to standard",
        f"{_AKS_DOCS}/api-server-authorized-ip-ranges#limitations-and-considerations",
    ),
    RejectionRule(
        "subnet-role", CLUSTER, BAD_REQUEST,
        "The cluster identity must have at least Network Contributor on the subnet",
        _find_subnet_role_problems, "grant the role, and make the cluster depend on the role assignment",
        f"{_AKS_DOCS}/concepts-network-cni-overview#aks-cni-networking-prerequisites",
    ),
)  # fmt: skip
