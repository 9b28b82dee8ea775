"""Dashboards as data: an overview, and one dashboard per tier."""

from collections.abc import Callable, Iterator

from voice_blueprint.aws import names
from voice_blueprint.aws.metrics import API_GATEWAY, CONTAINER_SERVICE, NETWORK_LOAD_BALANCER
from voice_blueprint.contract.metrics import Allowance, DropReason, Loss, StartPhase
from voice_blueprint.contract.network import Tier
from voice_blueprint.file.model.aws import AsrFleet
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.hosts import fleets_with
from voice_blueprint.observability import panels
from voice_blueprint.observability.aws.alerts import CALLERS_AFFECTED, Alert, alerts
from voice_blueprint.observability.aws.series import (
    Resource,
    Series,
    Statistic,
    fleet_series,
    group_series,
    log_series,
    node_series,
    service_series,
)

MIN_PERIOD_S = 10
"""Minimum period of an alarm. Dashboards use the same period, so that they show the values that alarms evaluate."""


Panel = panels.Panel[Series]
Dashboard = panels.Dashboard[Series]


def dashboards(deployment: Deployment) -> tuple[Dashboard, ...]:
    agents = (_agents,) if deployment.aws.agents else ()
    return tuple(build(deployment) for build in (_overview, _edge, *agents, _vad, _asr, _state))


def _overview(deployment: Deployment) -> Dashboard:
    gateway = names.GATEWAY_FLEET
    return Dashboard(
        "overview",
        "Are callers served? From their side of the platform to the store behind it.",
        (
            names.alert_alarm(deployment, CALLERS_AFFECTED),
            *_alarms(deployment, lambda alert: alert.callers_affected or alert.tier is Tier.AWS),
        ),
        (
            Panel("Callers", _callers()),
            Panel(
                "First transcript, ms",
                tuple(
                    fleet_series(deployment, gateway, name, s, label=f"{label} {s}")
                    for name, label in (("TimeToFirstText", "first text"), ("TimeToFinal", "final"))
                    for s in ("p50", "p95")
                ),
            ),
            Panel(
                "Sessions, a minute",
                (
                    fleet_series(deployment, gateway, "SessionsCreated", "Sum", label="created"),
                    fleet_series(deployment, gateway, "SessionsRefused", "Sum", label="refused"),
                ),
            ),
            Panel("Silence dropped, %", (fleet_series(deployment, names.VAD_FLEET, "SilenceDropped", "Average"),)),
            _ring(deployment),
            _drops(deployment),
            Panel("Waiting for prefill and decode", _queues(deployment)),
            _headroom(deployment),
            _gpu(deployment),
            _nodes(deployment, "Valkey memory, %", "DatabaseMemoryUsagePercentage", "Maximum"),
            _nodes(deployment, "Valkey engine CPU, %", "EngineCPUUtilization", "Average"),
            Panel(
                "Packets refused between our own addresses", (log_series(deployment, "InternalPacketsRejected", "all"),)
            ),
            Panel("Session API", (_api("Count", "Sum", "requests"), _api("5XXError", "Sum", "failed"))),
        ),
    )


def _edge(deployment: Deployment) -> Dashboard:
    gateway = names.GATEWAY_FLEET
    service = (Resource.GATEWAY_CLUSTER, Resource.GATEWAY_SERVICE)
    return Dashboard(
        "edge",
        "Session API, load balancers and the gateway service.",
        _alarms(deployment, lambda alert: alert.tier is Tier.GATEWAY),
        (
            Panel("Callers", _callers()),
            Panel(
                "Session API, requests",
                (
                    _api("Count", "Sum", "all"),
                    _api("4XXError", "Sum", "refused (4xx)"),
                    _api("5XXError", "Sum", "failed (5xx)"),
                ),
            ),
            Panel("Session API, p95 ms (event streams included)", (_api("Latency", "p95", "latency"),)),
            Panel(
                "Open sockets of the fullest task",
                (fleet_series(deployment, gateway, "OpenSockets", "Maximum", label="sockets"),),
            ),
            Panel(
                "Gateway service, % of what it reserves",
                (
                    service_series(CONTAINER_SERVICE, "CPUUtilization", "Average", service, "CPU"),
                    service_series(CONTAINER_SERVICE, "MemoryUtilization", "Average", service, "memory"),
                ),
            ),
            Panel(
                "Gateway targets",
                (
                    *_targets(Resource.GATEWAY_PUBLIC_TARGETS, Resource.PUBLIC_LOAD_BALANCER, "public"),
                    *_targets(Resource.GATEWAY_API_TARGETS, Resource.API_LOAD_BALANCER, "API"),
                ),
            ),
            Panel("Broken TLS handshakes", (_balancer("ClientTLSNegotiationErrorCount", "Sum", "handshakes"),)),
            Panel("Errors in the gateway's log", (log_series(deployment, "GatewayErrors", "errors"),)),
        ),
    )


def _agents(deployment: Deployment) -> Dashboard:
    fleet, service = names.AGENT_FLEET, (Resource.AGENT_CLUSTER, Resource.AGENT_SERVICE)
    return Dashboard(
        "agents",
        "Conversations: how many, how soon they are answered, who is refused.",
        _alarms(deployment, lambda alert: alert.tier is Tier.AGENT),
        (
            Panel(
                "Conversations of a task",
                (
                    fleet_series(deployment, fleet, "Conversations", "Maximum", label="fullest"),
                    fleet_series(deployment, fleet, "Conversations", "Average", label="mean"),
                ),
            ),
            Panel(
                "Callers refused", (fleet_series(deployment, fleet, "ConversationsRefused", "Sum", label="refused"),)
            ),
            *(
                Panel(title, tuple(fleet_series(deployment, fleet, name, s, label=s) for s in ("p50", "p95")))
                for title, name in (
                    ("End of a question to its answer, ms", "TurnLatency"),
                    ("Interruption to silence, ms", "BargeInLatency"),
                )
            ),
            Panel("Targets", _targets(Resource.AGENT_TARGETS, Resource.AGENT_LOAD_BALANCER, "agent")),
            Panel(
                "Agent service, % of what it reserves",
                (
                    service_series(CONTAINER_SERVICE, "CPUUtilization", "Average", service, "CPU"),
                    service_series(CONTAINER_SERVICE, "MemoryUtilization", "Average", service, "memory"),
                ),
            ),
        ),
    )


def _vad(deployment: Deployment) -> Dashboard:
    fleet = names.VAD_FLEET
    return Dashboard(
        "vad",
        "The packet tier: what comes in, what is dropped and why.",
        _alarms(deployment, lambda alert: alert.tier is Tier.VAD),
        (
            _ring(deployment),
            _drops(deployment),
            Panel(
                "Held back by EC2, by allowance",
                tuple(fleet_series(deployment, fleet, "AllowanceExceeded", "Sum", part=each) for each in Allowance),
                stacked=True,
            ),
            Panel("Silence dropped, %", (fleet_series(deployment, fleet, "SilenceDropped", "Average"),)),
            Panel(
                "Live sessions of a host",
                (
                    fleet_series(deployment, fleet, "VadSessions", "Maximum", label="fullest"),
                    fleet_series(deployment, fleet, "VadSessions", "Average", label="mean"),
                ),
            ),
            Panel("Targets", _targets(Resource.VAD_TARGETS, Resource.PUBLIC_LOAD_BALANCER, "VAD")),
            *_hosts(names.vad_groups(deployment)),
            Panel("Launches given up", (log_series(deployment, "VadHostsAbandoned", "hosts"),)),
        ),
    )


def _asr(deployment: Deployment) -> Dashboard:
    fleets = deployment.aws.asr
    return Dashboard(
        "asr",
        "Speech recognition: Neuron hosts first, GPUs when they are full, CPUs last.",
        _alarms(deployment, lambda alert: alert.tier is Tier.ASR),
        (
            _headroom(deployment),
            _gpu(deployment),
            Panel(
                "Free slots of the emptiest host",
                _fleet_series(deployment, fleets, "FreeSlots", "Maximum"),
                MIN_PERIOD_S,
            ),
            Panel(
                "Real-time factor (below 1 keeps up)", _fleet_series(deployment, fleets, "RealTimeFactor", "Average")
            ),
            Panel("Waiting for prefill and decode", _queues(deployment)),
            Panel("Speech not transcribed, by loss", _speech_loss_series(deployment), stacked=True),
            *_hosts([names.group(deployment, fleet.name) for fleet in fleets]),
            Panel("Launches given up", (log_series(deployment, "AsrHostsAbandoned", "hosts"),)),
            *_start_up_panels(deployment),
        ),
    )


def _state(deployment: Deployment) -> Dashboard:
    return Dashboard(
        "state",
        "Valkey: sessions, host registry, transcripts.",
        _alarms(deployment, lambda alert: alert.tier is Tier.STATE),
        (
            _nodes(deployment, "Memory, %", "DatabaseMemoryUsagePercentage", "Maximum"),
            _nodes(deployment, "Engine CPU, %", "EngineCPUUtilization", "Average"),
            _nodes(deployment, "Replication lag, s", "ReplicationLag", "Maximum"),
            _nodes(deployment, "Evicted keys", "Evictions", "Sum"),
            _nodes(deployment, "Connections", "CurrConnections", "Maximum"),
            _nodes(deployment, "Read latency in the engine, µs", "SuccessfulReadRequestLatency", "Average"),
        ),
    )


def _alarms(deployment: Deployment, predicate: Callable[[Alert], bool]) -> tuple[str, ...]:
    return tuple(alert.alarm_name(deployment) for alert in alerts(deployment) if predicate(alert))


def _callers() -> tuple[Series, ...]:
    return (
        _balancer("ActiveFlowCount_UDP", "Average", "RTP flows"),
        _balancer("ActiveFlowCount_TLS", "Average", "WebSockets"),
    )


def _balancer(metric: str, statistic: Statistic, label: str) -> Series:
    return service_series(NETWORK_LOAD_BALANCER, metric, statistic, (Resource.PUBLIC_LOAD_BALANCER,), label)


def _targets(targets: Resource, balancer: Resource, label: str) -> tuple[Series, ...]:
    return (
        service_series(NETWORK_LOAD_BALANCER, "HealthyHostCount", "Minimum", (targets, balancer), f"{label} healthy"),
        service_series(
            NETWORK_LOAD_BALANCER, "UnHealthyHostCount", "Maximum", (targets, balancer), f"{label} unhealthy"
        ),
    )


def _api(metric: str, statistic: Statistic, label: str) -> Series:
    return service_series(API_GATEWAY, metric, statistic, (Resource.API, Resource.API_STAGE), label)


def _fleet_series(
    deployment: Deployment, fleets: tuple[AsrFleet, ...], metric: str, statistic: Statistic, label: str = ""
) -> tuple[Series, ...]:
    return tuple(
        fleet_series(deployment, fleet.name, metric, statistic, label=f"{fleet.name} {label}".strip())
        for fleet in fleets
    )


def _queues(deployment: Deployment) -> tuple[Series, ...]:
    fleets = deployment.aws.asr
    return (
        *_fleet_series(deployment, fleets, "EncoderQueueDepth", "Maximum", "prefill"),
        *_fleet_series(deployment, fleets, "DecoderQueueDepth", "Maximum", "decode"),
    )


def _ring(deployment: Deployment) -> Panel:
    ring = fleet_series(deployment, names.VAD_FLEET, "RxRingOccupancy", "Maximum", label="fullest ring")
    return Panel("Receive queue depth, % of the ring", (ring,), MIN_PERIOD_S)


def _drops(deployment: Deployment) -> Panel:
    series = (fleet_series(deployment, names.VAD_FLEET, "RxDropped", "Sum", part=reason) for reason in DropReason)
    return Panel("Packets dropped, by reason", tuple(series), stacked=True)


def _speech_loss_series(deployment: Deployment) -> tuple[Series, ...]:
    fleets = deployment.aws.asr
    return tuple(
        fleet_series(deployment, fleet.name, "SpeechLost", "Sum", part=loss) for fleet in fleets for loss in Loss
    )


def _start_up_panels(deployment: Deployment) -> Iterator[Panel]:
    """Yield a panel with the start-up time of hosts by phase for each fleet.

    docs/cold-start.md contains the expected values.
    """
    for fleet in deployment.aws.asr:
        series = (fleet_series(deployment, fleet.name, "ColdStart", "Maximum", part=phase) for phase in StartPhase)
        yield Panel(f"Start of a host of {fleet.name}, seconds by phase", tuple(series), stacked=True)


def _headroom(deployment: Deployment) -> Panel:
    return Panel(
        "Neuron headroom, %",
        _fleet_series(deployment, fleets_with(deployment, "neuron"), "NeuronHeadroom", "Average"),
        MIN_PERIOD_S,
    )


def _gpu(deployment: Deployment) -> Panel:
    return Panel(
        "GPU busy, %", _fleet_series(deployment, fleets_with(deployment, "gpu"), "GpuBusy", "Average"), MIN_PERIOD_S
    )


def _nodes(deployment: Deployment, title: str, metric: str, statistic: Statistic) -> Panel:
    return Panel(title, tuple(node_series(node, metric, statistic) for node in names.state_nodes(deployment)))


def _hosts(groups: list[str]) -> tuple[Panel, Panel]:
    return (
        Panel("Hosts in service", tuple(group_series(group, "GroupInServiceInstances", "Average") for group in groups)),
        Panel("Hosts on their way", tuple(group_series(group, "GroupPendingInstances", "Average") for group in groups)),
    )
