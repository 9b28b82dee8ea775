"""Alerts for individual tiers."""

from collections.abc import Iterator
from dataclasses import replace

from voice_blueprint.aws import names
from voice_blueprint.aws.alarms import AlarmRule
from voice_blueprint.aws.metrics import API_GATEWAY_NAMESPACE, NLB_NAMESPACE
from voice_blueprint.capacity.bounds import calculate_max_gateway_sockets
from voice_blueprint.contract.metrics import DropReason, LossReason, NetworkAllowance
from voice_blueprint.contract.network import Tier
from voice_blueprint.file.model.aws import AsrFleet
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.hosts import list_accelerated_fleets
from voice_blueprint.observability.alerting import ALERT_CONDITION_BY_ID, MAX_STORE_LOAD_PERCENT
from voice_blueprint.observability.aws.alerts.base import (
    MINUTE_S,
    Alert,
    build_above_threshold_rule,
    build_below_threshold_rule,
    build_shared_alert,
)
from voice_blueprint.observability.aws.series import (
    Resource,
    Series,
    StatisticName,
    build_fleet_series,
    build_node_series,
    build_service_series,
)

SATURATION_THRESHOLD = 0.9
"""Average utilization at which a task counts as saturated; scaling aims at 0.7."""

MAX_LATE_SAMPLE_PERCENT = 5
"""Percentage of late samples above which an alert on a latency fires."""


def build_vad_alerts(deployment: Deployment) -> Iterator[Alert]:
    """Yield the alerts for the tier that receives packets."""
    fleet = names.VAD_FLEET
    # The seed document specifies this threshold. It is not a scaling rule: flows stay on their host, so new hosts do
    # not relieve a saturated host.
    yield Alert(
        "vad-ring-full",
        Tier.VAD,
        "A receive ring of a VAD host fills up again and again: packets are about to be dropped.",
        (build_fleet_series(deployment, fleet, "RxRingOccupancy", "Maximum"),),
        build_above_threshold_rule(80, 2, 3),
        10,
    )
    yield build_shared_alert(
        "vad-packets-dropped",
        Tier.VAD,
        (build_fleet_series(deployment, fleet, "RxDropped", "Sum", part=DropReason.RING_FULL),),
        2,
        3,
    )
    # EC2 drops these packets before they reach the host.
    for allowance in NetworkAllowance:
        yield Alert(
            "vad-allowance-exceeded",
            Tier.VAD,
            "EC2 holds packets of VAD hosts back, since they exceed what their type is allowed: callers lose words.",
            (build_fleet_series(deployment, fleet, "AllowanceExceeded", "Sum", part=allowance),),
            build_above_threshold_rule(ALERT_CONDITION_BY_ID["vad-packets-dropped"].threshold, 2, 3),
            MINUTE_S,
            affects_callers=True,
            target=allowance.removesuffix("_allowance_exceeded").replace("_", "-"),
        )
    yield build_shared_alert(
        "vad-stopped", Tier.VAD, (build_fleet_series(deployment, fleet, "VadStopped", "Maximum"),), 2, 3
    )
    yield Alert(
        "vad-hosts-unhealthy",
        Tier.VAD,
        "A VAD host fails the load balancer's health check: its callers' audio goes nowhere until it is replaced.",
        (_build_unhealthy_target_series(Resource.VAD_TARGETS, Resource.PUBLIC_LOAD_BALANCER),),
        build_above_threshold_rule(0, 3, 3),
        MINUTE_S,
        affects_callers=True,
    )


def build_asr_alerts(deployment: Deployment) -> Iterator[Alert]:
    """Yield the alerts for the speech recognition tier.

    Alerts on all fleets of a kind concern the capacity of the platform.
    """
    fleets = deployment.aws.asr
    neuron, gpu = list_accelerated_fleets(deployment, "neuron"), list_accelerated_fleets(deployment, "gpu")
    if neuron:
        # A fleet scales out below 20 % headroom and stays below it until a host has launched. At 5 % capacity is almost
        # exhausted.
        yield Alert(
            "neuron-exhausted",
            Tier.ASR,
            "No Neuron fleet has headroom left: new sessions go to GPUs, which cost more and are fewer.",
            _build_fleet_series(deployment, neuron, "NeuronHeadroom", "Average"),
            build_below_threshold_rule(5, 6, 6),
            10,
        )
    if gpu:
        # Scaling acts at 90 %. A new host that has not joined after five minutes will never join.
        yield Alert(
            "gpu-saturated",
            Tier.ASR,
            "Every GPU fleet is busy and growing does not help: the last resort is nearly used up.",
            _build_fleet_series(deployment, gpu, "GpuBusy", "Average"),
            build_above_threshold_rule(95, 5, 5),
            MINUTE_S,
            aggregation="MIN",
        )
    if fleets:
        yield build_shared_alert(
            "asr-slots-exhausted",
            Tier.ASR,
            _build_fleet_series(deployment, fleets, "FreeSlots", "Maximum"),
            3,
            3,
            period_s=10,
        )
    for fleet in fleets:
        # Above 1, audio arrives faster than it is recognized, and the delay grows without limit.
        yield Alert(
            "realtime-factor-high",
            Tier.ASR,
            f"Fleet {fleet.name} recognises speech more slowly than it is spoken: transcripts fall behind.",
            (build_fleet_series(deployment, fleet.name, "RealTimeFactor", "Average"),),
            build_above_threshold_rule(1, 3, 3),
            MINUTE_S,
            affects_callers=True,
            target=fleet.name,
        )
        # Callers of the host have moved to other hosts; the host is replaced after five minutes.
        yield Alert(
            "engine-stuck",
            Tier.ASR,
            f"A host of fleet {fleet.name} has work and finishes none of it: its engine, or the vLLM beside it, hangs.",
            (build_fleet_series(deployment, fleet.name, "EngineStuck", "Maximum"),),
            build_above_threshold_rule(0, 1, 1),
            MINUTE_S,
            affects_callers=True,
            target=fleet.name,
        )
        for alert, loss, meaning, rule, affects_callers in _SPEECH_LOSS_ALERTS:
            yield Alert(
                alert,
                Tier.ASR,
                f"Fleet {fleet.name} {meaning}",
                (build_fleet_series(deployment, fleet.name, "SpeechLost", "Sum", part=loss),),
                rule,
                MINUTE_S,
                affects_callers=affects_callers,
                target=fleet.name,
            )


# A partial transcript is skipped for each second of waiting.
_SPEECH_LOSS_ALERTS = (
    ("speech-refused", LossReason.REFUSED, "has no slot for admitted callers, and does not transcribe them.",
     build_above_threshold_rule(ALERT_CONDITION_BY_ID["speech-lost"].threshold, 2, 3), True),
    ("chunks-lost", LossReason.LOST_CHUNKS, "misses speech that was sent to it.",
     build_above_threshold_rule(ALERT_CONDITION_BY_ID["speech-lost"].threshold, 2, 3), True),
    ("utterances-given-up", LossReason.ABANDONED, "gives up utterances: their finals are empty.",
     build_above_threshold_rule(0, 2, 3), True),
    ("partials-shed", LossReason.PARTIALS_SHED, "leaves out partial transcripts: it has more to do than it can.",
     build_above_threshold_rule(60, 3, 5), False),
)  # fmt: skip


def _build_fleet_series(
    deployment: Deployment, fleets: tuple[AsrFleet, ...], metric: str, statistic: StatisticName
) -> tuple[Series, ...]:
    return tuple(build_fleet_series(deployment, fleet.name, metric, statistic) for fleet in fleets)


def build_edge_alerts(deployment: Deployment) -> Iterator[Alert]:
    """Yield the alerts on sessions, transcripts and the REST API."""
    fleet, service = names.GATEWAY_FLEET, deployment.aws.edge.gateway
    yield _build_saturation_alert(
        deployment,
        Tier.GATEWAY,
        fleet,
        "OpenSockets",
        capacity=calculate_max_gateway_sockets(service),
        max_tasks=service.tasks.max,
    )
    refused, created = (
        build_fleet_series(deployment, fleet, f"Sessions{outcome}", "Sum") for outcome in ("Refused", "Created")
    )
    yield replace(build_shared_alert("sessions-refused", Tier.GATEWAY, (refused, created), 3, 5), aggregation="SHARE")
    yield _build_latency_alert(deployment, "first-transcript-slow", Tier.GATEWAY, fleet, "TimeToFinal")
    for target, targets, balancer in (
        ("public", Resource.GATEWAY_PUBLIC_TARGETS, Resource.PUBLIC_LOAD_BALANCER),
        ("api", Resource.GATEWAY_API_TARGETS, Resource.API_LOAD_BALANCER),
    ):
        yield Alert(
            "gateway-unhealthy",
            Tier.GATEWAY,
            f"A gateway task fails the {target} load balancer's health check: its callers' connections hang or break.",
            (_build_unhealthy_target_series(targets, balancer),),
            build_above_threshold_rule(0, 3, 3),
            MINUTE_S,
            affects_callers=True,
            target=target,
        )
    # The threshold is 1 % of requests. With three of five minutes, a single failure in a quiet minute does not page an
    # operator.
    yield Alert(
        "api-server-errors",
        Tier.GATEWAY,
        "The session API fails more than one request in a hundred.",
        (build_service_series(API_GATEWAY_NAMESPACE, "5XXError", "Average", (Resource.API, Resource.API_STAGE)),),
        build_above_threshold_rule(0.01, 3, 5),
        MINUTE_S,
        affects_callers=True,
    )


def build_agent_alerts(deployment: Deployment) -> Iterator[Alert]:
    """Yield the alerts for agents. Without `agents`, there are none."""
    if deployment.aws.agents is None:
        return
    fleet, agents = names.AGENT_FLEET, deployment.aws.agents
    yield _build_saturation_alert(
        deployment, Tier.AGENT, fleet, "Conversations", capacity=agents.conversations, max_tasks=agents.tasks.max
    )
    refused = (build_fleet_series(deployment, fleet, "ConversationsRefused", "Sum"),)
    yield build_shared_alert("conversations-refused", Tier.AGENT, refused, 2, 3)
    yield _build_latency_alert(deployment, "turn-slow", Tier.AGENT, fleet, "TurnLatency")
    yield _build_latency_alert(deployment, "barge-in-slow", Tier.AGENT, fleet, "BargeInLatency")
    yield Alert(
        "agent-unhealthy",
        Tier.AGENT,
        "An agent task fails the load balancer's health check: its callers' connections hang or break.",
        (_build_unhealthy_target_series(Resource.AGENT_TARGETS, Resource.AGENT_LOAD_BALANCER),),
        build_above_threshold_rule(0, 3, 3),
        MINUTE_S,
        affects_callers=True,
    )


def build_state_alerts(deployment: Deployment) -> Iterator[Alert]:
    """Yield the alerts for each node of the state store."""
    for number, node in enumerate(names.list_state_node_ids(deployment), start=1):
        # At 100 %, volatile-ttl evicts the sessions that expire first. A remaining fifth of the memory leaves time to
        # act.
        yield _build_node_alert(
            "valkey-memory-high", f"Valkey node {node} uses more than 80 % of its memory: at 100 % sessions are lost.",
            build_node_series(node, "DatabaseMemoryUsagePercentage", "Maximum"), build_above_threshold_rule(80, 5, 5),
            number,
        )  # fmt: skip
        yield _build_node_alert(
            "valkey-evictions", f"Valkey node {node} drops keys for want of memory: sessions are lost.",
            build_node_series(node, "Evictions", "Sum"), build_above_threshold_rule(0, 2, 3), number,
            affects_callers=True,
        )  # fmt: skip
        yield _build_node_alert(
            "valkey-cpu-high",
            f"Valkey node {node} keeps its one engine thread over {MAX_STORE_LOAD_PERCENT} % busy: every command "
            "waits.",
            build_node_series(node, "EngineCPUUtilization", "Average"),
            build_above_threshold_rule(MAX_STORE_LOAD_PERCENT, 5, 5),
            number,
        )  # fmt: skip
        if deployment.aws.state.replicas:
            # A failover loses the sessions and transcripts of this period. A replica in another zone normally lags by
            # milliseconds.
            yield _build_node_alert(
                "valkey-replication-lag", f"Valkey node {node} is more than a second behind: a fail-over loses that.",
                build_node_series(node, "ReplicationLag", "Maximum"), build_above_threshold_rule(1, 5, 5), number,
            )  # fmt: skip


def _build_node_alert(
    id_: str, meaning: str, series: Series, rule: AlarmRule, number: int, *, affects_callers: bool = False
) -> Alert:
    return Alert(
        id_, Tier.STATE, meaning, (series,), rule, MINUTE_S, affects_callers=affects_callers, target=f"{number:03d}"
    )


def _build_saturation_alert(
    deployment: Deployment, tier: Tier, fleet: str, metric: str, *, capacity: int, max_tasks: int
) -> Alert:
    """Return the alert on a service whose tasks are saturated at its maximum number of tasks.

    Args:
        capacity: Value of the metric at which a task is full. Scaling aims at ``TARGET_UTILIZATION`` of this value.
        max_tasks: Maximum number of tasks.
    """
    return Alert(
        "service-saturated",
        tier,
        f"Tasks of {fleet} have been nearly full for ten minutes: the service has its maximum of {max_tasks}, or no "
        "new task starts.",
        (build_fleet_series(deployment, fleet, metric, "Average"),),
        build_above_threshold_rule(SATURATION_THRESHOLD * capacity, 10, 10),
        MINUTE_S,
        target=fleet,
    )


def _build_latency_alert(deployment: Deployment, id_: str, tier: Tier, fleet: str, metric: str) -> Alert:
    """Return an alert that fires if the p95 of a latency exceeds its threshold.

    The alarm reads the share of late samples instead, because CloudWatch requires 200 samples for a p95, more than
    small deployments have in a minute:
    https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/percentiles-with-low-samples.html
    """
    statistics = (f"PR(:{ALERT_CONDITION_BY_ID[id_].threshold:g})", "SampleCount")
    series = tuple(build_fleet_series(deployment, fleet, metric, statistic) for statistic in statistics)
    alert = build_shared_alert(id_, tier, series, 3, 5)
    return replace(alert, rule=build_above_threshold_rule(MAX_LATE_SAMPLE_PERCENT, 3, 5), aggregation="LATE")


def _build_unhealthy_target_series(targets: Resource, balancer: Resource) -> Series:
    return build_service_series(NLB_NAMESPACE, "UnHealthyHostCount", "Maximum", (targets, balancer))
