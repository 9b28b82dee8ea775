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
    agents = (_agents_dashboard,) if deployment.aws.agents else ()
    return tuple(
        build(deployment)
        for build in (_overview_dashboard, _edge_dashboard, *agents, _vad_dashboard, _asr_dashboard, _state_dashboard)
    )


def _overview_dashboard(deployment: Deployment) -> Dashboard:
    gateway = names.GATEWAY_FLEET
    return Dashboard(
        "overview",
        "Are callers served? From their side of the platform to the store behind it.",
        (
            names.alert_alarm_name(deployment, CALLERS_AFFECTED),
            *_alarm_names(deployment, lambda alert: alert.callers_affected or alert.tier is Tier.AWS),
        ),
        (
            Panel("Callers", _caller_series()),
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
            _ring_panel(deployment),
            _drop_panel(deployment),
            Panel("Waiting for prefill and decode", _queue_series(deployment)),
            _headroom_panel(deployment),
            _gpu_panel(deployment),
            _node_panel(deployment, "Valkey memory, %", "DatabaseMemoryUsagePercentage", "Maximum"),
            _node_panel(deployment, "Valkey engine CPU, %", "EngineCPUUtilization", "Average"),
            Panel(
                "Packets refused between our own addresses", (log_series(deployment, "InternalPacketsRejected", "all"),)
            ),
            Panel("Session API", (_api_series("Count", "Sum", "requests"), _api_series("5XXError", "Sum", "failed"))),
        ),
    )


def _edge_dashboard(deployment: Deployment) -> Dashboard:
    gateway = names.GATEWAY_FLEET
    service = (Resource.GATEWAY_CLUSTER, Resource.GATEWAY_SERVICE)
    return Dashboard(
        "edge",
        "Session API, load balancers and the gateway service.",
        _alarm_names(deployment, lambda alert: alert.tier is Tier.GATEWAY),
        (
            Panel("Callers", _caller_series()),
            Panel(
                "Session API, requests",
                (
                    _api_series("Count", "Sum", "all"),
                    _api_series("4XXError", "Sum", "refused (4xx)"),
                    _api_series("5XXError", "Sum", "failed (5xx)"),
                ),
            ),
            Panel("Session API, p95 ms (event streams included)", (_api_series("Latency", "p95", "latency"),)),
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
                    *_target_series(Resource.GATEWAY_PUBLIC_TARGETS, Resource.PUBLIC_LOAD_BALANCER, "public"),
                    *_target_series(Resource.GATEWAY_API_TARGETS, Resource.API_LOAD_BALANCER, "API"),
                ),
            ),
            Panel(
                "Broken TLS handshakes", (_load_balancer_series("ClientTLSNegotiationErrorCount", "Sum", "handshakes"),)
            ),
            Panel("Errors in the gateway's log", (log_series(deployment, "GatewayErrors", "errors"),)),
        ),
    )


def _agents_dashboard(deployment: Deployment) -> Dashboard:
    fleet, service = names.AGENT_FLEET, (Resource.AGENT_CLUSTER, Resource.AGENT_SERVICE)
    return Dashboard(
        "agents",
        "Conversations: how many, how soon they are answered, who is refused.",
        _alarm_names(deployment, lambda alert: alert.tier is Tier.AGENT),
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
            Panel("Targets", _target_series(Resource.AGENT_TARGETS, Resource.AGENT_LOAD_BALANCER, "agent")),
            Panel(
                "Agent service, % of what it reserves",
                (
                    service_series(CONTAINER_SERVICE, "CPUUtilization", "Average", service, "CPU"),
                    service_series(CONTAINER_SERVICE, "MemoryUtilization", "Average", service, "memory"),
                ),
            ),
        ),
    )


def _vad_dashboard(deployment: Deployment) -> Dashboard:
    fleet = names.VAD_FLEET
    return Dashboard(
        "vad",
        "The packet tier: what comes in, what is dropped and why.",
        _alarm_names(deployment, lambda alert: alert.tier is Tier.VAD),
        (
            _ring_panel(deployment),
            _drop_panel(deployment),
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
            Panel("Targets", _target_series(Resource.VAD_TARGETS, Resource.PUBLIC_LOAD_BALANCER, "VAD")),
            *_host_panels(names.vad_group_names(deployment)),
            Panel("Launches given up", (log_series(deployment, "VadHostsAbandoned", "hosts"),)),
        ),
    )


def _asr_dashboard(deployment: Deployment) -> Dashboard:
    fleets = deployment.aws.asr
    return Dashboard(
        "asr",
        "Speech recognition: Neuron hosts first, GPUs when they are full, CPUs last.",
        _alarm_names(deployment, lambda alert: alert.tier is Tier.ASR),
        (
            _headroom_panel(deployment),
            _gpu_panel(deployment),
            Panel(
                "Free slots of the emptiest host",
                _fleet_series(deployment, fleets, "FreeSlots", "Maximum"),
                MIN_PERIOD_S,
            ),
            Panel(
                "Real-time factor (below 1 keeps up)", _fleet_series(deployment, fleets, "RealTimeFactor", "Average")
            ),
            Panel("Waiting for prefill and decode", _queue_series(deployment)),
            Panel("Speech not transcribed, by loss", _speech_loss_series(deployment), stacked=True),
            *_host_panels([names.group_name(deployment, fleet.name) for fleet in fleets]),
            Panel("Launches given up", (log_series(deployment, "AsrHostsAbandoned", "hosts"),)),
            *_start_up_panels(deployment),
        ),
    )


def _state_dashboard(deployment: Deployment) -> Dashboard:
    return Dashboard(
        "state",
        "Valkey: sessions, host registry, transcripts.",
        _alarm_names(deployment, lambda alert: alert.tier is Tier.STATE),
        (
            _node_panel(deployment, "Memory, %", "DatabaseMemoryUsagePercentage", "Maximum"),
            _node_panel(deployment, "Engine CPU, %", "EngineCPUUtilization", "Average"),
            _node_panel(deployment, "Replication lag, s", "ReplicationLag", "Maximum"),
            _node_panel(deployment, "Evicted keys", "Evictions", "Sum"),
            _node_panel(deployment, "Connections", "CurrConnections", "Maximum"),
            _node_panel(deployment, "Read latency in the engine, µs", "SuccessfulReadRequestLatency", "Average"),
        ),
    )


def _alarm_names(deployment: Deployment, predicate: Callable[[Alert], bool]) -> tuple[str, ...]:
    return tuple(alert.alarm_name(deployment) for alert in alerts(deployment) if predicate(alert))


def _caller_series() -> tuple[Series, ...]:
    return (
        _load_balancer_series("ActiveFlowCount_UDP", "Average", "RTP flows"),
        _load_balancer_series("ActiveFlowCount_TLS", "Average", "WebSockets"),
    )


def _load_balancer_series(metric: str, statistic: Statistic, label: str) -> Series:
    return service_series(NETWORK_LOAD_BALANCER, metric, statistic, (Resource.PUBLIC_LOAD_BALANCER,), label)


def _target_series(targets: Resource, balancer: Resource, label: str) -> tuple[Series, ...]:
    return (
        service_series(NETWORK_LOAD_BALANCER, "HealthyHostCount", "Minimum", (targets, balancer), f"{label} healthy"),
        service_series(
            NETWORK_LOAD_BALANCER, "UnHealthyHostCount", "Maximum", (targets, balancer), f"{label} unhealthy"
        ),
    )


def _api_series(metric: str, statistic: Statistic, label: str) -> Series:
    return service_series(API_GATEWAY, metric, statistic, (Resource.API, Resource.API_STAGE), label)


def _fleet_series(
    deployment: Deployment, fleets: tuple[AsrFleet, ...], metric: str, statistic: Statistic, label: str = ""
) -> tuple[Series, ...]:
    return tuple(
        fleet_series(deployment, fleet.name, metric, statistic, label=f"{fleet.name} {label}".strip())
        for fleet in fleets
    )


def _queue_series(deployment: Deployment) -> tuple[Series, ...]:
    fleets = deployment.aws.asr
    return (
        *_fleet_series(deployment, fleets, "EncoderQueueDepth", "Maximum", "prefill"),
        *_fleet_series(deployment, fleets, "DecoderQueueDepth", "Maximum", "decode"),
    )


def _ring_panel(deployment: Deployment) -> Panel:
    ring = fleet_series(deployment, names.VAD_FLEET, "RxRingOccupancy", "Maximum", label="fullest ring")
    return Panel("Receive queue depth, % of the ring", (ring,), MIN_PERIOD_S)


def _drop_panel(deployment: Deployment) -> Panel:
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


def _headroom_panel(deployment: Deployment) -> Panel:
    return Panel(
        "Neuron headroom, %",
        _fleet_series(deployment, fleets_with(deployment, "neuron"), "NeuronHeadroom", "Average"),
        MIN_PERIOD_S,
    )


def _gpu_panel(deployment: Deployment) -> Panel:
    return Panel(
        "GPU busy, %", _fleet_series(deployment, fleets_with(deployment, "gpu"), "GpuBusy", "Average"), MIN_PERIOD_S
    )


def _node_panel(deployment: Deployment, title: str, metric: str, statistic: Statistic) -> Panel:
    return Panel(title, tuple(node_series(node, metric, statistic) for node in names.state_node_ids(deployment)))


def _host_panels(groups: list[str]) -> tuple[Panel, Panel]:
    return (
        Panel("Hosts in service", tuple(group_series(group, "GroupInServiceInstances", "Average") for group in groups)),
        Panel("Hosts on their way", tuple(group_series(group, "GroupPendingInstances", "Average") for group in groups)),
    )
