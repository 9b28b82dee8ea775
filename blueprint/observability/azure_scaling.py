"""When engines are scaled: what KEDA asks Prometheus for, and which answer asks for another replica."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from blueprint.azure.contract import NAMESPACE
from blueprint.azure.metrics import (
    CONTAINER_CPU,
    POOL_SERIES,
    ROLE_SERIES,
    SERVICE_SERIES,
    AgentMetric,
    CellRole,
    EngineMetric,
    total,
)
from blueprint.capacity import FILL
from blueprint.contract.metrics import FLEET_DIMENSION, METRICS
from blueprint.engines.sizing.service import size_service
from blueprint.file.model.azure import (
    AggregatedService,
    Azure,
    AzureService,
    ChatService,
    PrefillDecodeCell,
    TtsService,
)

TARGET_SHARE = 0.8
"""Share of what a replica carries at which the next one is asked for: a new GPU node and a cold engine take 15 to 25
minutes, in which callers still come. A choice, to be measured."""

WAITING_SHARE = 0.1
"""Share of a cell's sessions that may wait for prefill: a wait is what a caller hears. A choice, to be measured."""


@dataclass(frozen=True)
class Pace:
    """How fast a Kubernetes autoscaler may change replicas; of two limits the wider one holds.

    Attributes:
        pods: Replicas in a period.
        percent: The same in percent of those that there are.
        settle_s: What was asked for in so long a time before counts too, and whatever keeps more replicas wins.
    """

    pods: int
    percent: int
    period_s: int
    settle_s: int


SCALE_UP = Pace(pods=2, percent=100, period_s=60, settle_s=0)
SCALE_DOWN = Pace(pods=1, percent=0, period_s=600, settle_s=1800)
"""One at a time, since its callers move to the others, which have to show that they carry them; and only after so long
without need of it: its caches and its node cost minutes to get back."""


@dataclass(frozen=True)
class Trigger:
    """One reason to scale.

    Attributes:
        query: PromQL for the sum over all replicas.
        per_replica: How much of it one replica should have.
    """

    name: str
    query: str
    per_replica: float


def triggers(azure: Azure, service: AzureService) -> Mapping[str, tuple[Trigger, ...]]:
    """Return the triggers of a service on each of its pools."""
    pools = size_service(azure, service).pools
    sessions = {pool.pool: pool.engine.sessions for pool in pools}
    match service:
        case PrefillDecodeCell():
            return {pool: _cell(service.name, pool, each) for pool, each in sessions.items()}
        case AggregatedService() | TtsService():
            kv_cache = isinstance(service, AggregatedService)
            return {pool: _aggregated(service.name, pool, each, kv_cache=kv_cache) for pool, each in sessions.items()}
        case ChatService():
            return {
                pool.pool: _aggregated(
                    service.name, pool.pool, pool.engine.sessions, earlier_sessions=sum(e.sessions for e in pools[:at])
                )
                for at, pool in enumerate(pools)
            }
    assert_never(service)


def cpu_trigger(deployment: str, cpus: float) -> Trigger:
    """Return the second trigger of pods that need no GPU: how much of their CPUs they use.

    Args:
        deployment: Name of their Deployment, and of its main container.
        cpus: Of one pod.
    """
    labels = f'namespace="{NAMESPACE}",pod=~"{deployment}-.*",container="{deployment}"'
    return Trigger("cpu", f"sum(rate({CONTAINER_CPU}{{{labels}}}[2m]))", cpus * FILL)


def places_trigger(component: str) -> Trigger:
    """Return the trigger of pods that admit by places: the share of them that is taken, in percent of each pod."""
    return Trigger("places", f'sum({METRICS["SlotsTaken"].series}{{{FLEET_DIMENSION}="{component}"}})', 100 * FILL)


def sockets_trigger(sockets: int) -> Trigger:
    """Return the trigger of gateways: their open sockets, against those that a pod admits."""
    return Trigger("sockets", f"sum({METRICS['OpenSockets'].series})", sockets * FILL)


def conversations_trigger(conversations: int) -> Trigger:
    """Return the trigger of agents: the conversations that they hold, against those that they admit.

    Args:
        conversations: That a pod admits.
    """
    return Trigger("conversations", f"sum({AgentMetric.CONVERSATIONS})", conversations * FILL)


def _aggregated(
    service: str, pool: str, sessions: int, *, kv_cache: bool = True, earlier_sessions: int = 0
) -> tuple[Trigger, ...]:
    """Return the triggers of engines that prefill and decode: requests in flight, and memory that sessions hold.

    Args:
        service: Name of the service.
        pool: Name of the pool.
        sessions: What one replica carries.
        kv_cache: Whether the engine says how full its KV cache is.
        earlier_sessions: What the service's earlier pools carry at their most. A later pool is asked for what is more,
            over the whole service: where it has no replica, it has no figures of its own.
    """
    labels = {SERVICE_SERIES: service, POOL_SERIES: pool}
    if earlier_sessions:
        whole = {SERVICE_SERIES: service}
        in_flight = f"{total(EngineMetric.RUNNING, **whole)} + {total(EngineMetric.WAITING, **whole)}"
        in_flight = f"clamp_min({in_flight} - {earlier_sessions * TARGET_SHARE:g}, 0)"
    else:
        in_flight = f"{total(EngineMetric.RUNNING, **labels)} + {total(EngineMetric.WAITING, **labels)}"
    found = [Trigger("requests", in_flight, sessions * TARGET_SHARE)]
    if kv_cache:
        found.append(Trigger("kv-cache", total(EngineMetric.KV_USAGE, **labels), TARGET_SHARE))
    return tuple(found)


def _cell(service: str, pool: str, sessions: int) -> tuple[Trigger, ...]:
    """Return the triggers of cells: whichever side runs short asks for a whole cell, since a cell is one pod."""
    labels = {SERVICE_SERIES: service, POOL_SERIES: pool}
    prefill = labels | {ROLE_SERIES: CellRole.PREFILL.value}
    decode = labels | {ROLE_SERIES: CellRole.DECODE.value}
    return (
        Trigger("prefill-waiting", total(EngineMetric.WAITING, **prefill), sessions * WAITING_SHARE),
        Trigger("decode-running", total(EngineMetric.RUNNING, **decode), sessions * TARGET_SHARE),
        Trigger("decode-kv-cache", total(EngineMetric.KV_USAGE, **decode), TARGET_SHARE),
    )
