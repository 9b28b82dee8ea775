"""What is away while a resource is replaced: what serves callers or holds state is not replaced by accident."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sandbox.azure.diff import Op, Step
from sandbox.azure.graph import short_type

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
    "network:PublicIPAddress": "the address that calls go out from: who lets it in by name has to change it",
    "network:Subnet": _CLUSTER,
    "network:VirtualNetwork": _CLUSTER,
    "operationalinsights:Workspace": "all logs until now",
    "resources:ResourceGroup": f"everything in it: {_CLUSTER}",
}
"""By type; the times are those of `docs/cold-start.md`, and estimates."""


@dataclass(frozen=True)
class Outage:
    """A replacement that takes something away.

    Attributes:
        name: Name of the resource, which accepts it.
        label: Its type and name.
        changes: Which inputs cannot change in place.
        down: What is away, and for how long.
        along: How many resources it takes along.
    """

    name: str
    label: str
    changes: tuple[str, ...]
    down: str
    along: int

    def text(self) -> str:
        """What it is, on one line."""
        along = f", and {self.along} resources with it" if self.along else ""
        return f"{self.label}{along}: {', '.join(self.changes)} cannot change in place. Away: {self.down}"


def outages(steps: Sequence[Step], accepted: Iterable[str] = ()) -> list[Outage]:
    """Return the replacements that nobody accepted, by the resources whose own inputs cause them."""
    replaced = [step for step in steps if step.op is Op.REPLACE]
    causes = [step for step in replaced if any(change.replaces for change in step.changes)]
    found = []
    for step in causes:
        kind, name = short_type(step.resource.type), step.resource.name
        if kind in DOWN and name not in set(accepted):
            changes = tuple(change.path for change in step.changes if change.replaces)
            found.append(Outage(name, step.resource.label, changes, DOWN[kind], len(_along(step, replaced))))
    return found


def _along(cause: Step, replaced: Sequence[Step]) -> set[str]:
    """Return the URNs of what a replaced resource takes along, directly or through another one."""
    taken = {cause.urn}
    for step in replaced:  # in the order of creation
        needs = {urn for urns in step.resource.property_dependencies.values() for urn in urns}
        if step.because and taken & (needs | {step.resource.provider or ""}):
            taken.add(step.urn)
    return taken - {cause.urn}
