"""Alerts of one tier each."""

from collections.abc import Iterator

from blueprint.aws import names
from blueprint.aws.alarms import AlarmRule
from blueprint.aws.alerts.base import MINUTE_S, Alert, above, below
from blueprint.aws.metrics import API_GATEWAY, NETWORK_LOAD_BALANCER
from blueprint.aws.series import Resource, Series, Statistic, of_fleet, of_node, of_service
from blueprint.contract.metrics import Allowance, DropReason, Loss
from blueprint.contract.network import Tier
from blueprint.file.model.aws import AsrFleet
from blueprint.file.model.deployment import Deployment
from blueprint.hosts import fleets_with


def of_vad(deployment: Deployment) -> Iterator[Alert]:
    """Yield the packet tier's alerts."""
    fleet = names.VAD_FLEET
    # The seed's threshold. It is no scaling rule: flows stay with their host, which new ones do not relieve.
    yield Alert(
        "vad-ring-full",
        Tier.VAD,
        "A receive ring of a VAD host fills up again and again: packets are about to be dropped.",
        (of_fleet(deployment, fleet, "RxRingOccupancy", "Maximum"),),
        above(80, 2, 3),
        10,
    )
    # 50 packets of 20 ms are one second of one caller.
    yield Alert(
        "vad-packets-dropped",
        Tier.VAD,
        "VAD hosts drop audio because their receive rings are full: callers lose words.",
        (of_fleet(deployment, fleet, "RxDropped", "Sum", part=DropReason.RING_FULL),),
        above(50, 2, 3),
        MINUTE_S,
        callers_affected=True,
    )
    # The same measure where EC2 drops them, before the host.
    for allowance in Allowance:
        yield Alert(
            "vad-allowance-exceeded",
            Tier.VAD,
            "EC2 holds packets of VAD hosts back, since they exceed what their type is allowed: callers lose words.",
            (of_fleet(deployment, fleet, "AllowanceExceeded", "Sum", part=allowance),),
            above(50, 2, 3),
            MINUTE_S,
            callers_affected=True,
            target=allowance.removesuffix("_allowance_exceeded").replace("_", "-"),
        )
    yield Alert(
        "vad-stopped",
        Tier.VAD,
        "The VAD module of a host was stopped: silence goes to the ASR tier as if it were speech.",
        (of_fleet(deployment, fleet, "VadStopped", "Maximum"),),
        above(0, 2, 3),
        MINUTE_S,
    )
    yield Alert(
        "vad-hosts-unhealthy",
        Tier.VAD,
        "A VAD host fails the load balancer's health check: its callers' audio goes nowhere until it is replaced.",
        (_unhealthy(Resource.VAD_TARGETS, Resource.PUBLIC_LOAD_BALANCER),),
        above(0, 3, 3),
        MINUTE_S,
        callers_affected=True,
    )


def of_asr(deployment: Deployment) -> Iterator[Alert]:
    """Yield the speech recognition tier's alerts; those on all fleets of a kind speak of the platform's capacity."""
    fleets = deployment.aws.asr
    neuron, gpu = fleets_with(deployment, "neuron"), fleets_with(deployment, "gpu")
    if neuron:
        # A fleet grows below 20 % headroom and stays there for as long as a launch takes; 5 % is the end of it.
        yield Alert(
            "neuron-exhausted",
            Tier.ASR,
            "No Neuron fleet has headroom left: new sessions go to GPUs, which cost more and are fewer.",
            _each(deployment, neuron, "NeuronHeadroom", "Average"),
            below(5, 6, 6),
            10,
        )
    if gpu:
        # Scaling acts at 90 %; five minutes later a new host has joined or never will.
        yield Alert(
            "gpu-saturated",
            Tier.ASR,
            "Every GPU fleet is busy and growing does not help: the last resort is nearly used up.",
            _each(deployment, gpu, "GpuBusy", "Average"),
            above(95, 5, 5),
            MINUTE_S,
            fold="MIN",
        )
    if fleets:
        yield Alert(
            "asr-slots-exhausted",
            Tier.ASR,
            "No speech recognition host has a free slot: new sessions are refused.",
            _each(deployment, fleets, "FreeSlots", "Maximum"),
            below(1, 3, 3),
            10,
            callers_affected=True,
        )
    for fleet in fleets:
        # Above 1 audio comes in faster than it is recognised, and the delay grows without bound.
        yield Alert(
            "realtime-factor-high",
            Tier.ASR,
            f"Fleet {fleet.name} recognises speech more slowly than it is spoken: transcripts fall behind.",
            (of_fleet(deployment, fleet.name, "RealTimeFactor", "Average"),),
            above(1, 3, 3),
            MINUTE_S,
            callers_affected=True,
            target=fleet.name,
        )
        for alert, loss, meaning, rule, noticed in _LOSSES:
            yield Alert(
                alert,
                Tier.ASR,
                f"Fleet {fleet.name} {meaning}",
                (of_fleet(deployment, fleet.name, "SpeechLost", "Sum", part=loss),),
                rule,
                MINUTE_S,
                callers_affected=noticed,
                target=fleet.name,
            )


# 10 chunks are a second of one caller's speech; a partial is left out for each second that waits.
_LOSSES = (
    ("speech-refused", Loss.REFUSED, "has no slot for callers who were let in, and hears nothing of them.",
     above(10, 2, 3), True),
    ("chunks-lost", Loss.LOST_CHUNKS, "misses speech that was sent to it.", above(10, 2, 3), True),
    ("utterances-given-up", Loss.GIVEN_UP, "gives up utterances: their finals are empty.", above(0, 2, 3), True),
    ("partials-shed", Loss.PARTIALS_SHED, "leaves out partial transcripts: it has more to do than it can.",
     above(60, 3, 5), False),
)  # fmt: skip


def _each(
    deployment: Deployment, fleets: tuple[AsrFleet, ...], metric: str, statistic: Statistic
) -> tuple[Series, ...]:
    return tuple(of_fleet(deployment, fleet.name, metric, statistic) for fleet in fleets)


def of_edge(deployment: Deployment) -> Iterator[Alert]:
    """Yield what callers would complain of."""
    fleet = names.GATEWAY_FLEET
    yield Alert(
        "sessions-refused",
        Tier.GATEWAY,
        "The gateway refuses new sessions for want of capacity.",
        (of_fleet(deployment, fleet, "SessionsRefused", "Sum"),),
        above(0, 2, 3),
        MINUTE_S,
        callers_affected=True,
    )
    # Beyond 1 s a person notices the wait: https://www.nngroup.com/articles/response-times-3-important-limits/
    yield Alert(
        "first-transcript-slow",
        Tier.GATEWAY,
        "One caller in twenty waits more than a second for the first words of a transcript.",
        (of_fleet(deployment, fleet, "TimeToFinal", "p95"),),
        above(1000, 3, 5),
        MINUTE_S,
        callers_affected=True,
    )
    for target, targets, balancer in (
        ("public", Resource.GATEWAY_PUBLIC_TARGETS, Resource.PUBLIC_LOAD_BALANCER),
        ("api", Resource.GATEWAY_API_TARGETS, Resource.API_LOAD_BALANCER),
    ):
        yield Alert(
            "gateway-unhealthy",
            Tier.GATEWAY,
            f"A gateway task fails the {target} load balancer's health check: its callers' connections hang or break.",
            (_unhealthy(targets, balancer),),
            above(0, 3, 3),
            MINUTE_S,
            callers_affected=True,
            target=target,
        )
    # 1 % of requests; three of five minutes keep one failure in a quiet minute from waking anybody.
    yield Alert(
        "api-server-errors",
        Tier.GATEWAY,
        "The session API fails more than one request in a hundred.",
        (of_service(API_GATEWAY, "5XXError", "Average", (Resource.API, Resource.API_STAGE)),),
        above(0.01, 3, 5),
        MINUTE_S,
        callers_affected=True,
    )


def of_state(deployment: Deployment) -> Iterator[Alert]:
    """Yield the state store's alerts, for each node."""
    for number, node in enumerate(names.state_nodes(deployment), start=1):
        # At 100 % volatile-ttl evicts the sessions nearest their end; a fifth is the time to act.
        yield _of_node(
            "valkey-memory-high", f"Valkey node {node} uses more than 80 % of its memory: at 100 % sessions are lost.",
            of_node(node, "DatabaseMemoryUsagePercentage", "Maximum"), above(80, 5, 5), number,
        )  # fmt: skip
        # AWS' own advice: https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/CacheMetrics.WhichShouldIMonitor.html
        yield _of_node(
            "valkey-cpu-high", f"Valkey node {node} keeps its one engine thread over 90 % busy: every command waits.",
            of_node(node, "EngineCPUUtilization", "Average"), above(90, 5, 5), number,
        )  # fmt: skip
        if deployment.aws.state.replicas:
            # A fail-over loses this much of sessions and transcripts; a replica in another zone is milliseconds behind.
            yield _of_node(
                "valkey-replication-lag", f"Valkey node {node} is more than a second behind: a fail-over loses that.",
                of_node(node, "ReplicationLag", "Maximum"), above(1, 5, 5), number,
            )  # fmt: skip


def _of_node(id_: str, meaning: str, series: Series, rule: AlarmRule, number: int) -> Alert:
    return Alert(id_, Tier.STATE, meaning, (series,), rule, MINUTE_S, target=f"{number:03d}")


def _unhealthy(targets: Resource, balancer: Resource) -> Series:
    return of_service(NETWORK_LOAD_BALANCER, "UnHealthyHostCount", "Maximum", (targets, balancer))
