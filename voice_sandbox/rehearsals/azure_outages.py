"""Outages caused by replacing or deleting resources that serve callers or store state.

They must be accepted explicitly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from voice_sandbox.azure.diff import Step
from voice_sandbox.azure.graph import short_type
from voice_sandbox.changes import Op, Outage

_ENGINES = "until new engines have loaded: 15 to 25 minutes, or longer where no GPU node is free"
_CLUSTER = "every service, until cluster, pools and engines are made anew: an hour or more"
DOWN: Mapping[str, str] = {
    "apps/v1:Deployment": f"what it runs, {_ENGINES}",
    "containerregistry:Registry": "all images, until they are pushed again: until then no node can start one",
    "containerservice:AgentPool": f"what runs on the pool, {_ENGINES}. Without that: add a pool of another name and a "
    "service on it, and take the old ones away once the new one serves (docs/guides/azure.md)",
    "containerservice:ManagedCluster": _CLUSTER,
    "core/v1:Namespace": f"everything in it, {_ENGINES}",
    "core/v1:PersistentVolumeClaim": "what lies on it, and what mounts it, until all models are fetched again",
    "dashboard:Grafana": "dashboards that people made, for good",
    "keyvault:Vault": "its secrets, for good where nobody restores them",
    "monitor:AzureMonitorWorkspace": "all metrics until now; scaling holds its replicas meanwhile",
    "network:ApplicationGateway": "session API and audio of callers, until a new one serves: 10 minutes or more",
    "network:NatGateway": "the way out of every node, for minutes: images, models and engines outside",
    "network:PublicIPAddress": "the address that callers come to, or calls go out from, for good: who knows it has to "
    "change it",
    "network:Subnet": _CLUSTER,
    "network:VirtualNetwork": _CLUSTER,
    "operationalinsights:Workspace": "all logs until now",
    **dict.fromkeys(
        ("redisenterprise:Database", "redisenterprise:RedisEnterprise"),
        "every session and its transcript, for good; no call begins until a new store answers: 10 minutes or more",
    ),
    **dict.fromkeys(
        ("storage:BlobContainer", "storage:StorageAccount"),
        "all archived transcripts, for good; calls go on, and later ones are archived in the new one",
    ),
    "resources:ResourceGroup": f"everything in it: {_CLUSTER}",
}
"""Outages by type; durations are estimates from `docs/cold-start.md`."""
_EMPTY_BEFORE = frozenset({"network:PublicIPAddress", "network:Subnet"})
"""Azure only deletes them after their users, which are deleted as well, and contain the outage."""


def outages(steps: Sequence[Step], accepted: Iterable[str] = ()) -> list[Outage]:
    """Return the unaccepted replacements and deletions, by the resources whose own inputs cause them."""
    replaced = [step for step in steps if step.op is Op.REPLACE]
    found = []
    for step in steps:
        kind, name = short_type(step.resource.type), step.resource.name
        changes = tuple(change.path for change in step.changes if change.replaces)
        deleted = step.op is Op.DELETE and kind not in _EMPTY_BEFORE
        if (deleted or changes) and kind in DOWN and name not in set(accepted):
            along = len(_along(step, replaced)) if changes else 0
            found.append(Outage(name, step.resource.label, changes, DOWN[kind], along))
    return found


def _along(cause: Step, replaced: Sequence[Step]) -> set[str]:
    """Return the URNs of the resources that are replaced together with a resource, directly or indirectly."""
    taken = {cause.urn}
    for step in replaced:  # in the order of creation
        needs = {urn for urns in step.resource.property_dependencies.values() for urn in urns}
        if step.because and taken & (needs | {step.resource.provider or ""}):
            taken.add(step.urn)
    return taken - {cause.urn}
