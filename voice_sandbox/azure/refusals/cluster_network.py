"""Rejections by AKS for a cluster's network: ranges, plugins, outbound type, subnets."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network

from voice_sandbox.azure.refusals.clusters import CLUSTER, POOL
from voice_sandbox.azure.refusals.request import Part, Request
from voice_sandbox.azure.refusals.roles import Role, is_granted, principal_ids
from voice_sandbox.azure.refusals.row import (
    BAD,
    Refusal,
    all_conditions,
    allow_only,
    forbid,
    has_value,
    negate,
    require,
)
from voice_sandbox.azure.refusals.sources import AZURERM_DOCS, LEARN

SUBNET = "network:Subnet"
_AKS = f"{LEARN}/aks"
_NOTES = f"{AZURERM_DOCS}/kubernetes_cluster.html.markdown"
_RESERVED_RANGES = tuple(map(IPv4Network, ("169.254.0.0/16", "172.30.0.0/16", "172.31.0.0/16", "192.0.2.0/24")))
_SERVICE_PREFIX_LIMIT = 12
_USES_CILIUM = has_value("networkProfile.networkDataplane", "cilium")


def _parse_range(body: Part, path: str) -> IPv4Network | None:
    try:
        return IPv4Network(body.text(path), strict=False)
    except ValueError:
        return None


def _subnets(request: Request) -> Iterator[tuple[Part, IPv4Network]]:
    """Yield the existing subnets of the cluster's network, with their ranges."""
    for pool in request.body.parts("agentPoolProfiles"):
        network = pool.text("vnetSubnetID").lower().rpartition("/subnets/")[0]
        for resource, subnet in request.existing_resources(SUBNET):
            prefix = _parse_range(subnet, "addressPrefix")
            if prefix and network and (resource.id or "").lower().startswith(f"{network}/"):
                yield subnet, prefix


def _node_subnet(request: Request) -> Part | None:
    ids = [pool.text("vnetSubnetID") for pool in request.body.parts("agentPoolProfiles")]
    return request.find_by_id(SUBNET, ids[0]) if ids else None


def _service_overlaps(request: Request) -> Iterator[str]:
    services = _parse_range(request.body, "networkProfile.serviceCidr")
    for subnet, prefix in _subnets(request):
        if services and services.overlaps(prefix):
            yield f"networkProfile.serviceCidr is {services}, subnet {subnet.text('subnetName')} {prefix}"


def _pod_overlaps(request: Request) -> Iterator[str]:
    pods, services = (_parse_range(request.body, f"networkProfile.{name}") for name in ("podCidr", "serviceCidr"))
    others = [(f"subnet {subnet.text('subnetName')}", prefix) for subnet, prefix in _subnets(request)]
    for name, other in [*others, *([("serviceCidr", services)] if services else [])]:
        if pods and pods.overlaps(other):
            yield f"networkProfile.podCidr is {pods}, {name} {other}"


def _reserved_range_problems(request: Request) -> Iterator[str]:
    ranges = [(name, _parse_range(request.body, f"networkProfile.{name}")) for name in ("podCidr", "serviceCidr")]
    ranges += [(f"subnet {subnet.text('subnetName')}", prefix) for subnet, prefix in _subnets(request)]
    for name, value in ranges:
        for reserved in _RESERVED_RANGES:
            if value and value.overlaps(reserved):
                yield f"{name} {value} overlaps {reserved}"


def _service_size_problems(request: Request) -> Iterator[str]:
    services = _parse_range(request.body, "networkProfile.serviceCidr")
    if services and services.prefixlen <= _SERVICE_PREFIX_LIMIT:
        yield f"networkProfile.serviceCidr is {services}"


def _dns_address_problems(request: Request) -> Iterator[str]:
    services, text = (
        _parse_range(request.body, "networkProfile.serviceCidr"),
        request.body.text("networkProfile.dnsServiceIP"),
    )
    if services and text:
        address = IPv4Address(text)
        if address not in services or address == services[1]:
            yield f"networkProfile.dnsServiceIP is {address}, serviceCidr {services}"


def _outbound_problems(request: Request) -> Iterator[str]:
    subnet = _node_subnet(request)
    by_gateway = has_value("networkProfile.outboundType", "userAssignedNATGateway")(request.body)
    if subnet and by_gateway and not subnet.get("natGateway.id"):
        yield f"subnet {subnet.text('subnetName')} has no natGateway"


def _delegated_subnet_problems(request: Request) -> Iterator[str]:
    subnet = request.find_by_id(SUBNET, request.body.text("vnetSubnetID"))
    if subnet and (delegations := subnet.parts("delegations")):
        yield f"{request.body.path_to('vnetSubnetID')} refers to a subnet that is delegated to " + ", ".join(
            each.text("serviceName") for each in delegations
        )


def _subnet_role_problems(request: Request) -> Iterator[str]:
    identities = principal_ids(request, request.body.texts("identity.userAssignedIdentities"))
    for pool in request.body.parts("agentPoolProfiles"):
        subnet = pool.text("vnetSubnetID")
        if (
            subnet
            and identities
            and not is_granted(request, identities, subnet, Role.NETWORK_CONTRIBUTOR, Role.CONTRIBUTOR)
        ):
            yield f"the control plane's identity has no such role on {subnet.rpartition('/')[2]} at that time"


ROWS = (
    Refusal(
        "service-range-overlaps-subnet", CLUSTER, "ServiceCidrOverlapExistingSubnetsCidr",
        "The specified service CIDR is conflicted with an existing subnet CIDR",
        _service_overlaps, "choose another azure.network.service_cidr", "https://github.com/Azure/AKS/issues/1117",
    ),
    Refusal(
        "pod-range-overlaps", CLUSTER, BAD, "The pod CIDR must not overlap with subnets and services",
        _pod_overlaps, "choose another azure.network.pod_cidr", f"{_AKS}/concepts-network-azure-cni-overlay#pods",
    ),
    Refusal(
        "reserved-ranges", CLUSTER, BAD, "Pods, services and the virtual network can't use ranges that AKS reserves",
        _reserved_range_problems, "choose another range in azure.network",
        f"{_AKS}/concepts-network-cni-overview#aks-cni-networking-prerequisites",
    ),
    Refusal(
        "service-range-size", CLUSTER, BAD, "The service CIDR must be smaller than /12",
        _service_size_problems, "use a /16 as azure.network.service_cidr", f"{_AKS}/use-byo-cni",
    ),
    Refusal(
        "dns-service-address", CLUSTER, BAD,
        "The DNS service IP must be within the service CIDR range and must not be its first address",
        _dns_address_problems, "use the tenth address of the range", f"{_AKS}/use-byo-cni",
    ),
    Refusal(
        "dataplane-plugin", CLUSTER, BAD, "The data plane cilium requires the network plugin azure",
        allow_only("networkProfile.networkPlugin", "azure", when=_USES_CILIUM),
        "set networkPlugin to azure", f"{_NOTES}#L689",
    ),
    Refusal(
        "policy-without-dataplane", CLUSTER, BAD, "The network policy cilium requires the data plane cilium",
        require("networkProfile.networkDataplane", "cilium", when=has_value("networkProfile.networkPolicy", "cilium")),
        "set networkDataplane to cilium", f"{_NOTES}#L681",
    ),
    Refusal(
        "pod-range-without-overlay", CLUSTER, BAD, "A pod CIDR is only supported in overlay mode",
        forbid("networkProfile.podCidr", when=all_conditions(
            has_value("networkProfile.networkPlugin", "azure"),
            negate(has_value("networkProfile.networkPluginMode", "overlay")),
        )),
        "set networkPluginMode to overlay", f"{_NOTES}#L667",
    ),
    Refusal(
        "outbound-gateway", CLUSTER, BAD, "The NAT gateway must exist before the cluster is created",
        _outbound_problems, "set natGateway of the subnet", f"{_AKS}/egress-outboundtype",
    ),
    Refusal(
        "outbound-of-own-network", CLUSTER, BAD, "The outbound type is for virtual networks that AKS manages",
        allow_only(
            "networkProfile.outboundType", "loadBalancer", "userAssignedNATGateway", "userDefinedRouting", "none",
            when=lambda body: any(pool.text("vnetSubnetID") for pool in body.parts("agentPoolProfiles")),
        ),
        "use userAssignedNATGateway or userDefinedRouting", f"{_AKS}/egress-outboundtype",
    ),
    Refusal(
        "subnet-is-delegated", POOL, "SubnetIsDelegated", "A delegated subnet cannot be used for nodes",
        _delegated_subnet_problems, "use a subnet without delegations", "https://github.com/MicrosoftDocs/azure-docs/issues/69774",
    ),
    Refusal(
        "basic-load-balancer", CLUSTER, BAD, "AKS no longer supports the Basic SKU load balancer",
        allow_only("networkProfile.loadBalancerSku", "standard"),
        "set loadBalancerSku to standard", f"{_AKS}/api-server-authorized-ip-ranges#limitations-and-considerations",
    ),
    Refusal(
        "subnet-role", CLUSTER, BAD, "The cluster identity must have at least Network Contributor on the subnet",
        _subnet_role_problems, "grant the role, and make the cluster depend on the role assignment",
        f"{_AKS}/concepts-network-cni-overview#aks-cni-networking-prerequisites",
    ),
)  # fmt: skip
