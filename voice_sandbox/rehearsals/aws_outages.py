"""Outages caused by replacing or deleting resources that serve callers or store state.

They must be accepted explicitly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from voice_sandbox.aws.diff import ResourceChange, ResourceKey
from voice_sandbox.changes import OpType, Outage

_HOST_OUTAGE_TEXT = (
    "its hosts: their calls end, and new calls wait until a host has booted and loaded its weights (docs/cold-start.md)"
)
_NETWORK_OUTAGE_TEXT = "every host, task and store in it, until all are recreated: an hour or more"
_ADDRESS_OUTAGE_TEXT = (
    "the address that callers use: calls end, and clients, records and firewalls that contain it must be updated"
)
OUTAGE_TEXT_BY_TYPE: Mapping[str, str] = {
    "AWS::ApiGateway::DomainName": _ADDRESS_OUTAGE_TEXT,
    "AWS::ApiGateway::RestApi": _ADDRESS_OUTAGE_TEXT,
    "AWS::AutoScaling::AutoScalingGroup": _HOST_OUTAGE_TEXT,
    "AWS::EC2::EIP": "the source address of outgoing connections: allow lists that contain it must be updated",
    "AWS::EC2::Subnet": _NETWORK_OUTAGE_TEXT,
    "AWS::EC2::VPC": _NETWORK_OUTAGE_TEXT,
    "AWS::ECR::Repository": "all images, until they are pushed again; until then, no host can start a container",
    "AWS::ECS::Cluster": "the gateway: active calls end, and new calls wait some minutes for tasks",
    "AWS::ECS::Service": "the gateway: active calls end, and new calls wait some minutes for tasks",
    "AWS::ElastiCache::ReplicationGroup": "all sessions: every call ends, and new calls wait 10 to 20 minutes for a "
    "store; `voice restore` restores sessions from a snapshot",
    "AWS::ElasticLoadBalancingV2::LoadBalancer": _ADDRESS_OUTAGE_TEXT,
    "AWS::ElasticLoadBalancingV2::TargetGroup": "calls through it, until the hosts of the new group are healthy: "
    "one to two minutes",
    "AWS::KMS::Key": "the data that it encrypts, once the key is deleted after 7 to 30 days",
    "AWS::Logs::LogGroup": "all existing logs",
    "AWS::S3::Bucket": "its objects",
    "AWS::SecretsManager::Secret": "the password or key in it: clients with the old value are rejected until they "
    "read the new one",
}
"""Outages by resource type. Durations are estimates from `docs/cold-start.md` and AWS's documentation.

Retained resources remain in the account, but no stack or program refers to them any more."""


def find_outages(steps: Sequence[ResourceChange], accepted: Iterable[str] = ()) -> list[Outage]:
    """Return the outages that are caused by a resource's own changes or deletion and are not accepted."""
    replaced = [step for step in steps if step.op is OpType.REPLACE]
    result = []
    for step in steps:
        stack, name = step.key
        down = (
            [OUTAGE_TEXT_BY_TYPE[step.kind]]
            if step.kind in OUTAGE_TEXT_BY_TYPE and (step.changes or step.op is OpType.DELETE)
            else []
        )
        if step.downgrades:
            down.append("nothing, but the deploy fails: the service does not support downgrades")
        if step.keeps_name:
            down.append("nothing, but the deploy fails: CloudFormation cannot replace a resource with an explicit name")
        if step.has_name_conflict:
            down.append(
                "nothing, but the deploy fails: CloudFormation cannot create a resource whose name another one has"
            )
        if step.changes_type:
            down.append("nothing, but the deploy fails: CloudFormation cannot change the type of a resource")
        if down and name not in set(accepted):
            also_replaced = len(_find_dependent_replacements(step.key, replaced)) if step.changes else 0
            changes = (
                step.changes
                or step.downgrades
                or tuple(f"a reference to {each}" for _, each in sorted(step.replaced_references))
            )
            result.append(Outage(name, f"{step.kind} {stack}/{name}", changes, "; ".join(down), also_replaced))
    return result


def _find_dependent_replacements(cause: ResourceKey, replaced: Sequence[ResourceChange]) -> set[ResourceKey]:
    """Return the resources that are replaced together with a resource, directly or indirectly."""
    affected = {cause}
    while newly_affected := {step.key for step in replaced if step.replaced_references & affected} - affected:
        affected |= newly_affected
    return affected - {cause}
