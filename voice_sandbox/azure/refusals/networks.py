"""Rejections by Azure's network and compute services: addresses, subnets, security groups, Bastion, VMs."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network

from voice_sandbox.azure.refusals.request import Request, RequestPart
from voice_sandbox.azure.refusals.row import (
    BAD_REQUEST,
    RejectionRule,
    allow_only,
    evaluate_each,
    has_value,
    require,
    require_range,
    require_unique,
)
from voice_sandbox.azure.refusals.sources import AZURERM_FILES, AZURERM_URL, LEARN_URL

ADDRESS, NAT, SUBNET = "network:PublicIPAddress", "network:NatGateway", "network:Subnet"
NETWORK, GROUP, BASTION = "network:VirtualNetwork", "network:NetworkSecurityGroup", "network:BastionHost"
PEERING, MACHINE = "network:VirtualNetworkPeering", "compute:VirtualMachine"
BASTION_SUBNET_NAME = "AzureBastionSubnet"
_NETWORK_SOURCE_URL = f"{AZURERM_FILES}/network"
REGIONS_WITHOUT_ZONES = frozenset(
    {
        "australiacentral", "australiacentral2", "australiasoutheast", "brazilsoutheast", "canadaeast", "francesouth",
        "germanynorth", "koreasouth", "northcentralus", "norwaywest", "southafricawest", "southindia",
        "switzerlandwest", "uaecentral", "ukwest", "westcentralus", "westindia", "westus",
    }
)  # fmt: skip
"""Regions without availability zones according to https://learn.microsoft.com/azure/reliability/regions-list."""
_MAX_BASTION_PREFIX_LENGTH = 26
_FORBIDDEN_USER_NAMES = frozenset(
    {
        "administrator", "admin", "user", "user1", "test", "user2", "test1", "user3", "admin1", "1", "123", "a",
        "actuser", "adm", "admin2", "aspnet", "backup", "console", "david", "guest", "john", "owner", "root", "server",
        "sql", "support", "support_388945a0", "sys", "test2", "test3", "user4", "user5",
    }
)  # fmt: skip


def _find_zone_problems(request: Request) -> Iterator[str]:
    location = request.body.get_text("location").lower().replace(" ", "")
    if request.body.get_texts("zones") and location in REGIONS_WITHOUT_ZONES:
        yield f"zones are {', '.join(request.body.get_texts('zones'))}, location {location}"


def build_zone_rule(kind: str) -> RejectionRule:
    """Return the row that rejects zones for a resource type in regions without availability zones."""
    return RejectionRule(
        f"zones-of-{kind.partition(':')[2]}", kind, "LocationNotSupportAvailabilityZones",
        "The resource does not support availability zones at its location",
        _find_zone_problems, "choose a region with availability zones (azure.location)",
        "https://github.com/Azure-Samples/azure-nvidia-robotics-reference-architecture/issues/182",
    )  # fmt: skip


def _find_zone_count_problems(request: Request) -> Iterator[str]:
    names = request.body.get_texts("zones")
    if len(names) > 1:
        yield f"zones are {', '.join(names)}"


def _parse_prefix(body: RequestPart) -> IPv4Network | None:
    try:
        return IPv4Network(body.get_text("addressPrefix"))
    except ValueError:
        return None


def _iter_sibling_subnets(request: Request) -> Iterator[tuple[str, RequestPart]]:
    for resource, subnet in request.iter_existing_resources(SUBNET):
        if subnet.get_text("virtualNetworkName") == request.body.get_text("virtualNetworkName"):
            yield resource.urn, subnet


def _find_subnet_range_problems(request: Request) -> Iterator[str]:
    prefix = _parse_prefix(request.body)
    for _, network in request.iter_existing_resources(NETWORK):
        spaces = [IPv4Network(each) for each in network.get_texts("addressSpace.addressPrefixes")]
        own_gateway = network.get_text("virtualNetworkName") == request.body.get_text("virtualNetworkName")
        if own_gateway and prefix and not any(prefix.subnet_of(space) for space in spaces):
            yield f"addressPrefix {prefix} is not in {', '.join(map(str, spaces))}"
    for _, subnet in _iter_sibling_subnets(request):
        other = _parse_prefix(subnet)
        if prefix and other and prefix.overlaps(other):
            yield f"addressPrefix {prefix} overlaps {other} of subnet {subnet.get_text('subnetName')}"


def _find_concurrent_subnet_problems(request: Request) -> Iterator[str]:
    for urn, subnet in _iter_sibling_subnets(request):
        if urn not in request.dependencies:
            yield f"subnet {subnet.get_text('subnetName')} of the same network may be changed concurrently"


def _find_bastion_subnet_problems(request: Request) -> Iterator[str]:
    for part in request.body.get_parts("ipConfigurations"):
        name = part.get_text("subnet.id").rpartition("/")[2]
        if name and name != BASTION_SUBNET_NAME:
            yield f"{part.to_full_path('subnet')} is {name}"
        subnet = request.find_by_id(SUBNET, part.get_text("subnet.id"))
        prefix = _parse_prefix(subnet) if subnet else None
        if prefix and prefix.prefixlen > _MAX_BASTION_PREFIX_LENGTH:
            yield f"{part.to_full_path('subnet')} is {prefix}"


def _find_bastion_group_problems(request: Request) -> Iterator[str]:
    group = request.find_by_id(GROUP, request.body.get_text("networkSecurityGroup.id"))
    if request.body.get_text("subnetName") != BASTION_SUBNET_NAME or not group:
        return
    for source in ("Internet", "GatewayManager"):
        if not any(_allows_source(rule, source) for rule in group.get_parts("securityRules")):
            yield f"security group {group.get_text('networkSecurityGroupName')} does not allow {source} on port 443"


def _allows_source(rule: RequestPart, source: str) -> bool:
    return (
        rule.get_text("direction") == "Inbound"
        and rule.get_text("access") == "Allow"
        and rule.get_text("sourceAddressPrefix") in {source, "*"}
        and rule.get_text("destinationPortRange") in {"443", "*"}
    )


def _build_rule_priority_key(rule: RequestPart) -> object:
    priority = rule.get_number("priority")
    return None if priority is None else f"{rule.get_text('direction')} {priority:g}"


def _find_priority_problems(rule: RequestPart) -> Iterator[str]:
    value = rule.get_number("priority")
    if value is not None and not 100 <= value <= 4096:  # noqa: PLR2004  the service's range
        yield f"{rule.to_full_path('priority')} is {value:g}; it must be at least 100 and at most 4096"


def _find_conflicting_gateway_problems(request: Request) -> Iterator[str]:
    if request.body.get("allowGatewayTransit") and request.body.get("useRemoteGateways"):
        yield "allowGatewayTransit and useRemoteGateways are both true"


def _find_remote_gateway_problems(request: Request) -> Iterator[str]:
    """Yield an error if a peering uses a remote gateway before the other peering allows gateway transit.

    A peering outside this deployment is ignored.
    """
    if request.body.get("useRemoteGateways"):
        shared_gateways = [
            peering.get("allowGatewayTransit") for _, peering in request.iter_guaranteed_resources(PEERING)
        ]
        if shared_gateways and not any(shared_gateways):
            yield "useRemoteGateways is true, and no earlier peering shares its gateway with allowGatewayTransit"


def _find_key_path_problems(request: Request) -> Iterator[str]:
    required_path = f"/home/{request.body.get_text('osProfile.adminUsername')}/.ssh/authorized_keys"
    for key in request.body.get_parts("osProfile.linuxConfiguration.ssh.publicKeys"):
        if key.get_text("path") != required_path:
            yield f"{key.to_full_path('path')} is {key.get_text('path')}; it must be {required_path}"


def _find_user_name_problems(request: Request) -> Iterator[str]:
    name = request.body.get_text("osProfile.adminUsername")
    if name.lower() in _FORBIDDEN_USER_NAMES:
        yield f"osProfile.adminUsername is {name}"


REJECTION_RULES = (
    build_zone_rule(ADDRESS),
    build_zone_rule(NAT),
    RejectionRule(
        "address-is-static", ADDRESS, BAD_REQUEST, "Public IP addresses of SKU Standard must be static",
        allow_only("publicIPAllocationMethod", "Static", when=has_value("sku.name", "Standard")),
        "set publicIPAllocationMethod to Static", f"{_NETWORK_SOURCE_URL}/public_ip_resource.go#L246",
    ),
    RejectionRule(
        "basic-address", ADDRESS, BAD_REQUEST, "Public IP addresses of SKU Basic can no longer be created",
        require("sku.name", "Standard", "StandardV2"),
        "set sku.name to Standard", f"{_NETWORK_SOURCE_URL}/public_ip_resource.go#L198",
    ),
    RejectionRule(
        "nat-zones", NAT, BAD_REQUEST, "A NAT gateway can be in at most one availability zone",
        _find_zone_count_problems, "name one zone", f"{AZURERM_URL}/issues/21696",
    ),
    RejectionRule(
        "nat-idle", NAT, BAD_REQUEST, "The idle timeout must be between 4 and 120 minutes",
        require_range("idleTimeoutInMinutes", 4, 120),
        "set idleTimeoutInMinutes to 10", f"{_NETWORK_SOURCE_URL}/nat_gateway_resource.go#L85",
    ),
    RejectionRule(
        "subnet-range", SUBNET, "NetcfgInvalidSubnet", "The subnet is not valid in the virtual network",
        _find_subnet_range_problems, "choose an unused part of the network's range",
        "https://github.com/Azure/azure-cli/issues/10917",
    ),
    RejectionRule(
        "subnets-at-once", SUBNET, "AnotherOperationInProgress",
        "Another operation on this or dependent resource is in progress",
        _find_concurrent_subnet_problems, "make each subnet depend on the previous one",
        "https://github.com/pulumi/pulumi-azure-native/issues/903",
    ),
    RejectionRule(
        "bastion-subnet", BASTION, BAD_REQUEST, "Azure Bastion requires a subnet AzureBastionSubnet of /26 or larger",
        _find_bastion_subnet_problems, "create a subnet AzureBastionSubnet with a /26",
        f"{LEARN_URL}/bastion/configuration-settings#subnet",
    ),
    RejectionRule(
        "bastion-security-group", SUBNET, BAD_REQUEST,
        "The security group lacks rules that Azure Bastion requires",
        _find_bastion_group_problems, "remove the security group, or add the rules", f"{LEARN_URL}/bastion/bastion-nsg",
    ),
    RejectionRule(
        "bastion-tunneling", BASTION, BAD_REQUEST, "Tunneling is only supported when the SKU is Standard or Premium",
        require("sku.name", "Standard", "Premium", when=has_value("enableTunneling", True)),
        "set sku.name to Standard", f"{_NETWORK_SOURCE_URL}/bastion_host_resource.go#L254",
    ),
    RejectionRule(
        "security-rule-priorities", GROUP, "SecurityRuleConflict", "Rules cannot have the same Priority and Direction",
        require_unique("securityRules", _build_rule_priority_key, "priority"),
        "assign a unique priority to each rule", "https://github.com/Azure/aks-engine/issues/2106",
    ),
    RejectionRule(
        "security-rule-range", GROUP, BAD_REQUEST, "Priorities of security rules must be between 100 and 4096",
        evaluate_each("securityRules", _find_priority_problems), "choose an unused priority in this range",
        f"{_NETWORK_SOURCE_URL}/network_security_group_resource.go#L179",
    ),
    RejectionRule(
        "gateway-both-ways", PEERING, BAD_REQUEST,
        "A peering can share its own gateway or use the remote one, but not both",
        _find_conflicting_gateway_problems, "remove one of the two",
        f"{LEARN_URL}/virtual-network/virtual-network-manage-peering",
    ),
    RejectionRule(
        "gateway-is-lent", PEERING, BAD_REQUEST,
        "The remote peering must allow gateway transit before its gateway is used",
        _find_remote_gateway_problems, "set allowGatewayTransit of the other side, and depend on it",
        f"{LEARN_URL}/virtual-network/virtual-network-manage-peering",
    ),
    RejectionRule(
        "ssh-key-path", MACHINE, BAD_REQUEST,
        "Destination path for SSH public keys is currently limited to its default value",
        _find_key_path_problems, "name the path after adminUsername", "https://github.com/Azure/WALinuxAgent/issues/1852",
    ),
    RejectionRule(
        "admin-name", MACHINE, BAD_REQUEST, "Azure does not allow this admin user name",
        _find_user_name_problems, "choose another adminUsername",
        f"{AZURERM_FILES}/compute/validate/linux_admin_username.go",
    ),
)  # fmt: skip
