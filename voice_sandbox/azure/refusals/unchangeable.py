"""Rejections of changes to immutable inputs that the provider does not recognize as immutable.

For these inputs, the provider sends an update instead of a replacement. Inputs in the resource's `replace_on_changes`
are not affected, since a replaced resource is created again.
"""

from __future__ import annotations

from collections.abc import Iterator

from voice_sandbox.azure.refusals.clusters import CLUSTER, POOL
from voice_sandbox.azure.refusals.gateways import GATEWAY
from voice_sandbox.azure.refusals.links import GRANT
from voice_sandbox.azure.refusals.networks import ADDRESS, NAT, NETWORK, SUBNET
from voice_sandbox.azure.refusals.row import BAD_REQUEST, RejectionRule, forbid_change
from voice_sandbox.azure.replacements import IMMUTABLE_POOL_INPUTS, UNCHANGEABLE_INPUTS_BY_TYPE

_ZONE_CHANGE_ERROR = (
    "ResourceAvailabilityZonesCannotBeModified",
    "Zones cannot be added/updated/removed once the resource is created",
)
_ERROR_BY_TYPE = {
    GRANT: ("RoleAssignmentUpdateNotPermitted", "Properties of an existing role assignment can't be changed"),
    POOL: ("PropertyChangeNotAllowed", "Changing this property of an existing node pool is not allowed"),
    CLUSTER: (BAD_REQUEST, "An existing cluster can't change between public and private, or its private DNS zone"),
    GATEWAY: _ZONE_CHANGE_ERROR,
    NAT: _ZONE_CHANGE_ERROR,
    ADDRESS: _ZONE_CHANGE_ERROR,
    SUBNET: ("InUsePrefixCannotBeDeleted", "The range of a subnet with allocated addresses can't be changed"),
    NETWORK: ("InUsePrefixCannotBeDeleted", "A range that contains subnets can't be removed from the network"),
}
"""Error code and reason by type."""
_DEFAULT_OUTBOUND_ERROR = (BAD_REQUEST, "This property can only be set at the time of subnet creation")
_SETTING_BY_INPUT = {
    (POOL, "vmSize"): "azure.system_pool.vm_size",
    (POOL, "availabilityZones"): "azure.availability_zones",
    **dict.fromkeys(((kind, "zones") for kind in (GATEWAY, NAT, ADDRESS)), "azure.availability_zones"),
    (CLUSTER, "apiServerAccessProfile.enablePrivateCluster"): "azure.access",
    (CLUSTER, "apiServerAccessProfile.privateDNSZone"): "azure.access and azure.existing.private_dns_zones",
    (SUBNET, "addressPrefix"): "azure.network.cidr",
    (NETWORK, "addressSpace.addressPrefixes"): "azure.network.cidr",
}
"""Settings in the deployment file that determine an input."""


def _iter_rejection_rules() -> Iterator[RejectionRule]:
    for kind, inputs in (UNCHANGEABLE_INPUTS_BY_TYPE | {POOL: IMMUTABLE_POOL_INPUTS}).items():
        for path, source in inputs.items():
            if path.startswith("agentPoolProfiles."):
                continue  # evaluated for each pool inside the cluster, by the rows of pools
            code, reason = _DEFAULT_OUTBOUND_ERROR if path == "defaultOutboundAccess" else _ERROR_BY_TYPE[kind]
            setting = _SETTING_BY_INPUT.get((kind, path), "the change")
            remedy = (
                f"revert {setting}, or deploy a copy of the file with another name beside this deployment, move the "
                "callers to it, and take this one down"
            )
            name = f"{kind.partition(':')[2]}-{path}-stays"
            yield RejectionRule(name, kind, code, reason, forbid_change(path), remedy, source.partition(" ")[0])


REJECTION_RULES = tuple(_iter_rejection_rules())
