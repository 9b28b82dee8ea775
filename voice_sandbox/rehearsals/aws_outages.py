"""Outages caused by replacing or deleting resources that serve callers or store state.

They must be accepted explicitly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from voice_sandbox.aws.diff import Place, Step
from voice_sandbox.changes import Op, Outage

_HOSTS = "its hosts: calls on them end, and new ones wait for a boot and a load of weights (docs/cold-start.md)"
_NETWORK = "every host, task and store in it, until all are made anew: an hour or more"
_ADDRESS = "the address that callers have: calls end, and clients, records and firewalls that name it have to change"
DOWN: Mapping[str, str] = {
    "AWS::ApiGateway::DomainName": _ADDRESS,
    "AWS::ApiGateway::RestApi": _ADDRESS,
    "AWS::AutoScaling::AutoScalingGroup": _HOSTS,
    "AWS::EC2::EIP": "the address that calls go out from: who lets it in by name has to change it",
    "AWS::EC2::Subnet": _NETWORK,
    "AWS::EC2::VPC": _NETWORK,
    "AWS::ECR::Repository": "all images, until they are pushed again: until then no host can start one",
    "AWS::ECS::Cluster": "the gateway: open calls end, new ones wait for tasks, some minutes",
    "AWS::ECS::Service": "the gateway: open calls end, new ones wait for tasks, some minutes",
    "AWS::ElastiCache::ReplicationGroup": "all sessions: every call ends, new ones wait 10 to 20 minutes for a store; "
    "`voice restore` keeps them, from a snapshot",
    "AWS::ElasticLoadBalancingV2::LoadBalancer": _ADDRESS,
    "AWS::ElasticLoadBalancingV2::TargetGroup": "calls through it, until the new group has found its hosts healthy: "
    "a minute or two",
    "AWS::KMS::Key": "what it encrypted, once the key is deleted: 7 to 30 days",
    "AWS::Logs::LogGroup": "all logs until now",
    "AWS::S3::Bucket": "what lies in it",
    "AWS::SecretsManager::Secret": "the password or key in it: who holds the old one is refused until it reads the new",
}
"""Outages by type; durations are estimates from `docs/cold-start.md` and AWS's documentation. Retained resources remain
in the account, but no stack or program refers to them any more."""


def outages(steps: Sequence[Step], accepted: Iterable[str] = ()) -> list[Outage]:
    """Return the unaccepted replacements and deletions, by the resources whose own properties cause them."""
    replaced = [step for step in steps if step.op is Op.REPLACE]
    found = []
    for step in steps:
        stack, name = step.place
        down = [DOWN[step.kind]] if step.kind in DOWN and (step.changes or step.op is Op.DELETE) else []
        if step.downgrades:
            down.append("nothing, but the deploy fails: the service refuses to go back to an older version")
        if step.kept_name:
            down.append("the deploy itself: CloudFormation replaces nothing that keeps a name of its own")
        if down and name not in set(accepted):
            along = len(_along(step.place, replaced)) if step.changes else 0
            changes = (
                step.changes or step.downgrades or tuple(f"what it has of {each}" for _, each in sorted(step.because))
            )
            found.append(Outage(name, f"{step.kind} {stack}/{name}", changes, "; ".join(down), along))
    return found


def _along(cause: Place, replaced: Sequence[Step]) -> set[Place]:
    """Return the resources that are replaced together with a resource, directly or indirectly."""
    taken = {cause}
    while more := {step.place for step in replaced if step.because & taken} - taken:
        taken |= more
    return taken - {cause}
