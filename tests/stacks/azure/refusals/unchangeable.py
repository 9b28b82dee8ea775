"""Refusal cases of changed inputs that Azure cannot change and that Pulumi does not replace."""

from dataclasses import replace

from tests.stacks.azure.refusals.planted import Case, Change, Damage
from voice_sandbox.azure.refusals.unchangeable import REJECTION_RULES

GRANT = "authorization:RoleAssignment"
POOL = "containerservice:AgentPool"
NAMES = {
    GRANT: "kubelet-pulls-images",
    "containerservice:ManagedCluster": "cluster",
    "network:ApplicationGateway": "edge",
    "network:NatGateway": "egress",
    "network:PublicIPAddress": "rtp",
    "network:Subnet": "endpoints",
    "network:VirtualNetwork": "network",
}
"""A resource of each type."""
VALUES: dict[str, object] = {
    "addressPrefix": "10.60.129.0/26",
    "addressSpace.addressPrefixes": ["10.60.0.0/15"],
    "defaultOutboundAccess": True,
    "availabilityZones": ["1"],
    "zones": ["3"],
}


def without_option(path: str, value: object) -> Damage:
    """Change an input of role assignments that the product lets Pulumi replace, without this option."""
    return lambda resources: tuple(
        replace(each, inputs={**each.inputs, path: value}, replace_on_changes=()) if each.name == NAMES[GRANT] else each
        for each in resources
    )


def case(row: str, kind: str) -> Case:
    path = row.split("-")[1]
    value = VALUES.get(path, "changed")
    wrong: Change = {path: value}
    right: Change = {"tags": {"a": "b"}}
    if kind == POOL:
        kind, wrong = "containerservice:ManagedCluster", {f"agentPoolProfiles.0.{path}": value}
        right = {"agentPoolProfiles.0.maxCount": 9}
    elif kind == GRANT:
        wrong, right = without_option(path, value), {}
    return Case(row, kind, NAMES[kind], wrong, right, f"{path} was ", update=True)


CASES = tuple(case(row.name, row.kind) for row in REJECTION_RULES)
