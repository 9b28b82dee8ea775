"""Minimal permissions for `pulumi up`, derived from the resource types in the cluster program."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from voice_sandbox.azure.arm import to_arm_type

RESOURCE_OPERATIONS = ("read", "write", "delete")
LINK_ACTION_BY_TYPE = {
    "managedidentity:UserAssignedIdentity": "assign/action",
    "network:NatGateway": "join/action",
    "network:NetworkInterface": "join/action",
    "network:NetworkSecurityGroup": "join/action",
    "network:PublicIPAddress": "join/action",
    "network:Subnet": "join/action",
    "network:VirtualNetwork": "join/action",
    "network:WebApplicationFirewallPolicy": "join/action",
}
"""Actions that ARM requires if another resource refers to a resource of one of these types.
https://learn.microsoft.com/azure/role-based-access-control/permissions/networking"""
RESOURCE_GROUP_TYPE = "Microsoft.Resources/subscriptions/resourceGroups"
PEERING_ACTION = "Microsoft.Network/virtualNetworks/peer/action"
COMMON_ACTIONS = ("Microsoft.ContainerService/managedClusters/listClusterUserCredential/action",)
"""Action that is always required, since the stack exports a kubeconfig."""


def list_required_actions(kinds: Iterable[str]) -> list[str]:
    """Return the permissions for running `pulumi up`.

    Args:
        kinds: Types such as ``network:NatGateway``.
    """
    kinds = set(kinds)
    links = {f"{to_arm_type(kind)}/{LINK_ACTION_BY_TYPE[kind]}" for kind in kinds & LINK_ACTION_BY_TYPE.keys()}
    types = {RESOURCE_GROUP_TYPE if kind == "resources:ResourceGroup" else to_arm_type(kind) for kind in kinds}
    peer = {PEERING_ACTION} if "network:VirtualNetworkPeering" in kinds else set()
    return sorted(
        {f"{kind}/{operation}" for kind in types for operation in RESOURCE_OPERATIONS}
        | links
        | peer
        | set(COMMON_ACTIONS)
    )


def is_action_allowed(action: str, actions: Iterable[str], not_actions: Iterable[str]) -> bool:
    """Return True if a role's permission allows an action. Azure ignores case."""

    def matches(patterns: Iterable[str]) -> bool:
        return any(fnmatchcase(action.lower(), pattern.lower()) for pattern in patterns)

    return matches(actions) and not matches(not_actions)
