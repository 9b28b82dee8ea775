"""Scaling of engines: KEDA's Prometheus queries, and their thresholds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from voice_blueprint.azure.contract import NAMESPACE
from voice_blueprint.azure.metrics import (
    CONTAINER_CPU_METRIC,
    POOL_METRIC_LABEL,
    ROLE_METRIC_LABEL,
    SERVICE_METRIC_LABEL,
    AgentMetric,
    CellRole,
    ClusterMetric,
    EngineMetric,
    SpeechMetric,
    build_sum_query,
)
from voice_blueprint.capacity.tiers import TARGET_UTILIZATION
from voice_blueprint.contract.metrics import FLEET_DIMENSION, METRICS
from voice_blueprint.engines.sizing.service import size_service
from voice_blueprint.file.model.azure import (
    AggregatedService,
    Azure,
    AzureService,
    ChatService,
    PrefillDecodeCell,
    TtsService,
)

REPLICA_TARGET_UTILIZATION = 0.8
"""Utilization of a replica at which another replica is added. A new GPU node and a cold engine need 15 to 25 minutes,
during which callers continue to arrive. This is our choice and has not been measured."""

MAX_WAITING_FRACTION = 0.1
"""Share of a cell's sessions that may wait for prefill, since callers notice this wait. This is our choice and has not
been measured."""


@dataclass(frozen=True)
class ScalingBehavior:
    """Rate limits of a Kubernetes autoscaler. Of two limits, the higher one applies.

    Attributes:
        pods: Maximum number of replicas per period.
        percent: Maximum percentage of the current replicas per period.
        stabilization_window_s: Stabilization window; the highest number of replicas recommended in it applies.
    """

    pods: int
    percent: int
    period_s: int
    stabilization_window_s: int


SCALE_UP_BEHAVIOR = ScalingBehavior(pods=2, percent=100, period_s=60, stabilization_window_s=0)
SCALE_DOWN_BEHAVIOR = ScalingBehavior(pods=1, percent=0, period_s=600, stabilization_window_s=1800)
"""Removes one replica at a time, since its callers move to other replicas. A replica is only removed if it has not been
needed for a long time, since restoring its caches and its node takes minutes."""


@dataclass(frozen=True)
class ScalingTrigger:
    """A reason to scale.

    Attributes:
        query: PromQL for the sum over all replicas.
        target_per_replica: Target value per replica.
    """

    name: str
    query: str
    target_per_replica: float


def build_scaling_triggers(azure: Azure, service: AzureService) -> Mapping[str, tuple[ScalingTrigger, ...]]:
    """Return the triggers for a service on each of its pools."""
    pools = size_service(azure, service).pools
    sessions = {pool.pool: pool.engine.sessions for pool in pools}
    match service:
        case PrefillDecodeCell():
            return {pool: _build_cell_triggers(service.name, pool, each) for pool, each in sessions.items()}
        case AggregatedService():
            return {pool: _build_aggregated_triggers(service.name, pool, each) for pool, each in sessions.items()}
        case TtsService():
            return {pool: (_build_speech_trigger(service.name, pool, each),) for pool, each in sessions.items()}
        case ChatService():
            return {
                pool.pool: _build_aggregated_triggers(
                    service.name,
                    pool.pool,
                    pool.engine.sessions,
                    earlier_pool_sessions=sum(e.sessions for e in pools[:at]),
                )
                for at, pool in enumerate(pools)
            }
    assert_never(service)


def add_zero_default(query: str, deployment: str) -> str:
    """Return a trigger's PromQL with the value 0 while its Deployment has no replicas and therefore no series.

    KEDA treats a result without series as an error here. In that case, versions below 2.19 do not set the minimum
    number of replicas, so a Deployment that has waited for its image would stay at 0
    (https://github.com/kedacore/keda/issues/7239).
    """
    labels = f'namespace="{NAMESPACE}",deployment="{deployment}"'
    return f"({query}) or sum({ClusterMetric.DESIRED_REPLICAS}{{{labels}}} == 0)"


def build_cpu_trigger(deployment: str, cpus: float) -> ScalingTrigger:
    """Return the trigger on the CPU utilization of pods without GPUs.

    These pods also have a trigger on their load.

    Args:
        deployment: Name of their Deployment and of its main container.
        cpus: CPUs per pod.
    """
    labels = f'namespace="{NAMESPACE}",pod=~"{deployment}-.*",container="{deployment}"'
    return ScalingTrigger("cpu", f"sum(rate({CONTAINER_CPU_METRIC}{{{labels}}}[2m]))", cpus * TARGET_UTILIZATION)


def build_slots_trigger(component: str) -> ScalingTrigger:
    """Return the trigger on the percentage of used slots per pod."""
    return ScalingTrigger(
        "places",
        f'sum({METRICS["SlotsTaken"].prometheus_name}{{{FLEET_DIMENSION}="{component}"}})',
        100 * TARGET_UTILIZATION,
    )


def build_sockets_trigger(sockets: int) -> ScalingTrigger:
    """Return the trigger on the open sockets of gateways, relative to the maximum per pod."""
    return ScalingTrigger("sockets", f"sum({METRICS['OpenSockets'].prometheus_name})", sockets * TARGET_UTILIZATION)


def build_conversations_trigger(conversations: int) -> ScalingTrigger:
    """Return the trigger on the active conversations of agents, relative to the maximum per pod.

    Args:
        conversations: Maximum conversations per pod.
    """
    return ScalingTrigger("conversations", f"sum({AgentMetric.CONVERSATIONS})", conversations * TARGET_UTILIZATION)


def _build_aggregated_triggers(
    service: str, pool: str, sessions: int, *, earlier_pool_sessions: int = 0
) -> tuple[ScalingTrigger, ...]:
    """Return the triggers for aggregated engines: requests in flight, and memory of sessions.

    Args:
        service: Name of the service.
        pool: Name of the pool.
        sessions: Sessions per replica.
        earlier_pool_sessions: Maximum sessions of the service's earlier pools. A later pool serves the remainder of the
            whole service's sessions, since without replicas it has no metrics of its own.
    """
    labels = {SERVICE_METRIC_LABEL: service, POOL_METRIC_LABEL: pool}
    if earlier_pool_sessions:
        service_labels = {SERVICE_METRIC_LABEL: service}
        running, waiting = (
            build_sum_query(metric, **service_labels) for metric in (EngineMetric.RUNNING, EngineMetric.WAITING)
        )
        in_flight = f"{running} + {waiting}"
        in_flight = f"clamp_min({in_flight} - {earlier_pool_sessions * REPLICA_TARGET_UTILIZATION:g}, 0)"
    else:
        in_flight = (
            f"{build_sum_query(EngineMetric.RUNNING, **labels)} + {build_sum_query(EngineMetric.WAITING, **labels)}"
        )
    return (
        ScalingTrigger("requests", in_flight, sessions * REPLICA_TARGET_UTILIZATION),
        ScalingTrigger("kv-cache", build_sum_query(EngineMetric.KV_USAGE, **labels), REPLICA_TARGET_UTILIZATION),
    )


def _build_speech_trigger(service: str, pool: str, sessions: int) -> ScalingTrigger:
    """Return the trigger for text to speech: requests in the whole pipeline.

    The stages' own gauges count each request twice.
    """
    labels = {SERVICE_METRIC_LABEL: service, POOL_METRIC_LABEL: pool}
    in_flight = f"{build_sum_query(SpeechMetric.RUNNING, **labels)} + {build_sum_query(SpeechMetric.WAITING, **labels)}"
    return ScalingTrigger("requests", in_flight, sessions * REPLICA_TARGET_UTILIZATION)


def _build_cell_triggers(service: str, pool: str, sessions: int) -> tuple[ScalingTrigger, ...]:
    """Return the triggers for cells. Each cell is one pod, so the busier engine adds a whole cell."""
    labels = {SERVICE_METRIC_LABEL: service, POOL_METRIC_LABEL: pool}
    prefill = labels | {ROLE_METRIC_LABEL: CellRole.PREFILL.value}
    decode = labels | {ROLE_METRIC_LABEL: CellRole.DECODE.value}
    return (
        ScalingTrigger(
            "prefill-waiting", build_sum_query(EngineMetric.WAITING, **prefill), sessions * MAX_WAITING_FRACTION
        ),
        ScalingTrigger(
            "decode-running", build_sum_query(EngineMetric.RUNNING, **decode), sessions * REPLICA_TARGET_UTILIZATION
        ),
        ScalingTrigger("decode-kv-cache", build_sum_query(EngineMetric.KV_USAGE, **decode), REPLICA_TARGET_UTILIZATION),
    )
