"""Outages caused by replacing or deleting resources that serve callers or store state.

They must be accepted explicitly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from voice_sandbox.azure.diff import Step
from voice_sandbox.azure.graph import shorten_type
from voice_sandbox.changes import OpType, Outage

_ENGINE_OUTAGE_TEXT = "until new engines have loaded: 15 to 25 minutes, or longer if no GPU node is available"
_CLUSTER_OUTAGE_TEXT = "every service, until cluster, pools and engines are recreated: an hour or more"
OUTAGE_TEXT_BY_TYPE: Mapping[str, str] = {
    "apps/v1:Deployment": f"its pods, {_ENGINE_OUTAGE_TEXT}",
    "containerregistry:Registry": "all images, until they are pushed again; until then, no node can start a container",
    "containerservice:AgentPool": f"the pods on the pool, {_ENGINE_OUTAGE_TEXT}. To avoid it, add a pool with another "
    "name and a service on it, and remove the old ones once the new service is ready (docs/guides/azure.md)",
    "containerservice:ManagedCluster": _CLUSTER_OUTAGE_TEXT,
    "core/v1:Namespace": f"everything in it, {_ENGINE_OUTAGE_TEXT}",
    "core/v1:PersistentVolumeClaim": "its data, and the pods that mount it, until all models are downloaded again",
    "dashboard:Grafana": "dashboards that users created, permanently",
    "keyvault:Vault": "its secrets, permanently unless they are restored",
    "monitor:AzureMonitorWorkspace": "all existing metrics; the number of replicas does not change in the meantime",
    "network:ApplicationGateway": "session API and audio of callers, until a new gateway is ready: 10 minutes or more",
    "network:NatGateway": "outbound connections of every node, for minutes: images, models and external engines",
    "network:PublicIPAddress": "the address that callers use, or the source address of outgoing connections, "
    "permanently: clients and allow lists that contain it must be updated",
    "network:Subnet": _CLUSTER_OUTAGE_TEXT,
    "network:VirtualNetwork": _CLUSTER_OUTAGE_TEXT,
    "operationalinsights:Workspace": "all existing logs",
    **dict.fromkeys(
        ("redisenterprise:Database", "redisenterprise:RedisEnterprise"),
        "every session and its transcript, permanently; calls cannot start until a new store is ready: 10 minutes "
        "or more",
    ),
    **dict.fromkeys(
        ("storage:BlobContainer", "storage:StorageAccount"),
        "all archived transcripts, permanently; calls continue, and later transcripts are stored in the new one",
    ),
    "resources:ResourceGroup": f"everything in it: {_CLUSTER_OUTAGE_TEXT}",
}
"""Outages by resource type. Durations are estimates from `docs/cold-start.md`."""
_TYPES_DELETED_AFTER_USERS = frozenset({"network:PublicIPAddress", "network:Subnet"})
"""Types that Azure deletes only after the resources that use them. The deletion of those resources is reported as the
outage, except for the resource that the other project uses."""
_RTP_ADDRESS = ("network:PublicIPAddress", "rtp")
_RTP_ADDRESS_OUTAGE_TEXT = (
    "audio that callers send over SRTP, permanently. Deploy `workloads` before `cluster`, since Azure does not delete "
    "the address of a load balancer (docs/guides/azure.md)"
)


def find_outages(steps: Sequence[Step], accepted: Iterable[str] = ()) -> list[Outage]:
    """Return the outages that are caused by a resource's own changes or deletion and are not accepted."""
    replaced = [step for step in steps if step.op is OpType.REPLACE]
    result = []
    for step in steps:
        kind, name = shorten_type(step.resource.type), step.resource.name
        changes = tuple(change.path for change in step.changes if change.requires_replacement)
        is_pod_address = step.op is OpType.DELETE and (kind, name) == _RTP_ADDRESS
        deleted = is_pod_address or (step.op is OpType.DELETE and kind not in _TYPES_DELETED_AFTER_USERS)
        if (deleted or changes) and kind in OUTAGE_TEXT_BY_TYPE and name not in set(accepted):
            also_replaced = len(_find_dependent_replacements(step, replaced)) if changes else 0
            text = _RTP_ADDRESS_OUTAGE_TEXT if is_pod_address else OUTAGE_TEXT_BY_TYPE[kind]
            result.append(Outage(name, step.resource.label, changes, text, also_replaced))
    return result


def _find_dependent_replacements(cause: Step, replaced: Sequence[Step]) -> set[str]:
    """Return the URNs of the resources that are replaced together with a resource, directly or indirectly."""
    affected = {cause.urn}
    for step in replaced:  # in the order of creation
        needs = {urn for urns in step.resource.property_dependencies.values() for urn in urns}
        if step.replace_reason and affected & (needs | {step.resource.provider or ""}):
            affected.add(step.urn)
    return affected - {cause.urn}
