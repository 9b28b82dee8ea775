"""Dashboards as data: an overview, and one dashboard per tier."""

from collections.abc import Callable, Iterator

from voice_blueprint.aws import names
from voice_blueprint.aws.metrics import API_GATEWAY_NAMESPACE, ECS_NAMESPACE, NLB_NAMESPACE
from voice_blueprint.contract.metrics import DropReason, LossReason, NetworkAllowance, StartPhase
from voice_blueprint.contract.network import Tier
from voice_blueprint.file.model.aws import AsrFleet
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.hosts import list_accelerated_fleets
from voice_blueprint.observability import panels
from voice_blueprint.observability.aws.alerts import CALLERS_AFFECTED_ALARM, Alert, build_alerts
from voice_blueprint.observability.aws.series import (
    Resource,
    Series,
    StatisticName,
    build_fleet_series,
    build_group_series,
    build_log_series,
    build_node_series,
    build_service_series,
)

MIN_PERIOD_S = 10
"""Minimum period of an alarm. Dashboards use the same period, so that they show the values that alarms evaluate."""


Panel = panels.Panel[Series]
Dashboard = panels.Dashboard[Series]


def build_dashboards(deployment: Deployment) -> tuple[Dashboard, ...]:
    agents = (_build_agents_dashboard,) if deployment.aws.agents else ()
    return tuple(
        build(deployment)
        for build in (
            _build_overview_dashboard,
            _build_edge_dashboard,
            *agents,
            _build_vad_dashboard,
            _build_asr_dashboard,
            _build_state_dashboard,
        )
    )


def _build_overview_dashboard(deployment: Deployment) -> Dashboard:
    gateway = names.GATEWAY_FLEET
    return Dashboard(
        "overview",
        "Are callers served? From their side of the platform to the store behind it.",
        (
            names.build_alert_alarm_name(deployment, CALLERS_AFFECTED_ALARM),
            *_list_alarm_names(deployment, lambda alert: alert.affects_callers or alert.tier is Tier.AWS),
        ),
        (
            Panel("Callers", _build_caller_series()),
            Panel(
                "First transcript, ms",
                tuple(
                    build_fleet_series(deployment, gateway, name, s, label=f"{label} {s}")
                    for name, label in (("TimeToFirstText", "first text"), ("TimeToFinal", "final"))
                    for s in ("p50", "p95")
                ),
            ),
            Panel(
                "Sessions, a minute",
                (
                    build_fleet_series(deployment, gateway, "SessionsCreated", "Sum", label="created"),
                    build_fleet_series(deployment, gateway, "SessionsRefused", "Sum", label="refused"),
                ),
            ),
            Panel(
                "Silence dropped, %", (build_fleet_series(deployment, names.VAD_FLEET, "SilenceDropped", "Average"),)
            ),
            _build_ring_panel(deployment),
            _build_drop_panel(deployment),
            Panel("Waiting for prefill and decode", _build_queue_series(deployment)),
            _build_headroom_panel(deployment),
            _build_gpu_panel(deployment),
            _build_node_panel(deployment, "Valkey memory, %", "DatabaseMemoryUsagePercentage", "Maximum"),
            _build_node_panel(deployment, "Valkey engine CPU, %", "EngineCPUUtilization", "Average"),
            Panel(
                "Packets refused between our own addresses",
                (build_log_series(deployment, "InternalPacketsRejected", "all"),),
            ),
            Panel(
                "Session API",
                (_build_api_series("Count", "Sum", "requests"), _build_api_series("5XXError", "Sum", "failed")),
            ),
        ),
    )


def _build_edge_dashboard(deployment: Deployment) -> Dashboard:
    gateway = names.GATEWAY_FLEET
    service = (Resource.GATEWAY_CLUSTER, Resource.GATEWAY_SERVICE)
    return Dashboard(
        "edge",
        "Session API, load balancers and the gateway service.",
        _list_alarm_names(deployment, lambda alert: alert.tier is Tier.GATEWAY),
        (
            Panel("Callers", _build_caller_series()),
            Panel(
                "Session API, requests",
                (
                    _build_api_series("Count", "Sum", "all"),
                    _build_api_series("4XXError", "Sum", "refused (4xx)"),
                    _build_api_series("5XXError", "Sum", "failed (5xx)"),
                ),
            ),
            Panel("Session API, p95 ms (event streams included)", (_build_api_series("Latency", "p95", "latency"),)),
            Panel(
                "Open sockets of the fullest task",
                (build_fleet_series(deployment, gateway, "OpenSockets", "Maximum", label="sockets"),),
            ),
            Panel(
                "Gateway service, % of what it reserves",
                (
                    build_service_series(ECS_NAMESPACE, "CPUUtilization", "Average", service, "CPU"),
                    build_service_series(ECS_NAMESPACE, "MemoryUtilization", "Average", service, "memory"),
                ),
            ),
            Panel(
                "Gateway targets",
                (
                    *_build_target_series(Resource.GATEWAY_PUBLIC_TARGETS, Resource.PUBLIC_LOAD_BALANCER, "public"),
                    *_build_target_series(Resource.GATEWAY_API_TARGETS, Resource.API_LOAD_BALANCER, "API"),
                ),
            ),
            Panel(
                "Broken TLS handshakes",
                (_build_load_balancer_series("ClientTLSNegotiationErrorCount", "Sum", "handshakes"),),
            ),
            Panel("Errors in the gateway's log", (build_log_series(deployment, "GatewayErrors", "errors"),)),
        ),
    )


def _build_agents_dashboard(deployment: Deployment) -> Dashboard:
    fleet, service = names.AGENT_FLEET, (Resource.AGENT_CLUSTER, Resource.AGENT_SERVICE)
    return Dashboard(
        "agents",
        "Conversations: how many, how soon they are answered, who is refused.",
        _list_alarm_names(deployment, lambda alert: alert.tier is Tier.AGENT),
        (
            Panel(
                "Conversations of a task",
                (
                    build_fleet_series(deployment, fleet, "Conversations", "Maximum", label="fullest"),
                    build_fleet_series(deployment, fleet, "Conversations", "Average", label="mean"),
                ),
            ),
            Panel(
                "Callers refused",
                (build_fleet_series(deployment, fleet, "ConversationsRefused", "Sum", label="refused"),),
            ),
            *(
                Panel(title, tuple(build_fleet_series(deployment, fleet, name, s, label=s) for s in ("p50", "p95")))
                for title, name in (
                    ("End of a question to its answer, ms", "TurnLatency"),
                    ("Interruption to silence, ms", "BargeInLatency"),
                )
            ),
            Panel("Targets", _build_target_series(Resource.AGENT_TARGETS, Resource.AGENT_LOAD_BALANCER, "agent")),
            Panel(
                "Agent service, % of what it reserves",
                (
                    build_service_series(ECS_NAMESPACE, "CPUUtilization", "Average", service, "CPU"),
                    build_service_series(ECS_NAMESPACE, "MemoryUtilization", "Average", service, "memory"),
                ),
            ),
        ),
    )


def _build_vad_dashboard(deployment: Deployment) -> Dashboard:
    fleet = names.VAD_FLEET
    return Dashboard(
        "vad",
        "The packet tier: what comes in, what is dropped and why.",
        _list_alarm_names(deployment, lambda alert: alert.tier is Tier.VAD),
        (
            _build_ring_panel(deployment),
            _build_drop_panel(deployment),
            Panel(
                "Held back by EC2, by allowance",
                tuple(
                    build_fleet_series(deployment, fleet, "AllowanceExceeded", "Sum", part=each)
                    for each in NetworkAllowance
                ),
                is_stacked=True,
            ),
            Panel("Silence dropped, %", (build_fleet_series(deployment, fleet, "SilenceDropped", "Average"),)),
            Panel(
                "Live sessions of a host",
                (
                    build_fleet_series(deployment, fleet, "VadSessions", "Maximum", label="fullest"),
                    build_fleet_series(deployment, fleet, "VadSessions", "Average", label="mean"),
                ),
            ),
            Panel("Targets", _build_target_series(Resource.VAD_TARGETS, Resource.PUBLIC_LOAD_BALANCER, "VAD")),
            *_build_host_panels(names.list_vad_group_names(deployment)),
            Panel("Launches given up", (build_log_series(deployment, "VadHostsAbandoned", "hosts"),)),
        ),
    )


def _build_asr_dashboard(deployment: Deployment) -> Dashboard:
    fleets = deployment.aws.asr
    return Dashboard(
        "asr",
        "Speech recognition: Neuron hosts first, GPUs when they are full, CPUs last.",
        _list_alarm_names(deployment, lambda alert: alert.tier is Tier.ASR),
        (
            _build_headroom_panel(deployment),
            _build_gpu_panel(deployment),
            Panel(
                "Free slots of the emptiest host",
                _build_fleet_series(deployment, fleets, "FreeSlots", "Maximum"),
                MIN_PERIOD_S,
            ),
            Panel(
                "Real-time factor (below 1 keeps up)",
                _build_fleet_series(deployment, fleets, "RealTimeFactor", "Average"),
            ),
            Panel("Waiting for prefill and decode", _build_queue_series(deployment)),
            Panel("Speech not transcribed, by loss", _build_speech_loss_series(deployment), is_stacked=True),
            *_build_host_panels([names.build_group_name(deployment, fleet.name) for fleet in fleets]),
            Panel("Launches given up", (build_log_series(deployment, "AsrHostsAbandoned", "hosts"),)),
            *_build_start_up_panels(deployment),
        ),
    )


def _build_state_dashboard(deployment: Deployment) -> Dashboard:
    return Dashboard(
        "state",
        "Valkey: sessions, host registry, transcripts.",
        _list_alarm_names(deployment, lambda alert: alert.tier is Tier.STATE),
        (
            _build_node_panel(deployment, "Memory, %", "DatabaseMemoryUsagePercentage", "Maximum"),
            _build_node_panel(deployment, "Engine CPU, %", "EngineCPUUtilization", "Average"),
            _build_node_panel(deployment, "Replication lag, s", "ReplicationLag", "Maximum"),
            _build_node_panel(deployment, "Evicted keys", "Evictions", "Sum"),
            _build_node_panel(deployment, "Connections", "CurrConnections", "Maximum"),
            _build_node_panel(deployment, "Read latency in the engine, µs", "SuccessfulReadRequestLatency", "Average"),
        ),
    )


def _list_alarm_names(deployment: Deployment, predicate: Callable[[Alert], bool]) -> tuple[str, ...]:
    return tuple(alert.format_alarm_name(deployment) for alert in build_alerts(deployment) if predicate(alert))


def _build_caller_series() -> tuple[Series, ...]:
    return (
        _build_load_balancer_series("ActiveFlowCount_UDP", "Average", "RTP flows"),
        _build_load_balancer_series("ActiveFlowCount_TLS", "Average", "WebSockets"),
    )


def _build_load_balancer_series(metric: str, statistic: StatisticName, label: str) -> Series:
    return build_service_series(NLB_NAMESPACE, metric, statistic, (Resource.PUBLIC_LOAD_BALANCER,), label)


def _build_target_series(targets: Resource, balancer: Resource, label: str) -> tuple[Series, ...]:
    return (
        build_service_series(NLB_NAMESPACE, "HealthyHostCount", "Minimum", (targets, balancer), f"{label} healthy"),
        build_service_series(NLB_NAMESPACE, "UnHealthyHostCount", "Maximum", (targets, balancer), f"{label} unhealthy"),
    )


def _build_api_series(metric: str, statistic: StatisticName, label: str) -> Series:
    return build_service_series(API_GATEWAY_NAMESPACE, metric, statistic, (Resource.API, Resource.API_STAGE), label)


def _build_fleet_series(
    deployment: Deployment, fleets: tuple[AsrFleet, ...], metric: str, statistic: StatisticName, label: str = ""
) -> tuple[Series, ...]:
    return tuple(
        build_fleet_series(deployment, fleet.name, metric, statistic, label=f"{fleet.name} {label}".strip())
        for fleet in fleets
    )


def _build_queue_series(deployment: Deployment) -> tuple[Series, ...]:
    fleets = deployment.aws.asr
    return (
        *_build_fleet_series(deployment, fleets, "EncoderQueueDepth", "Maximum", "prefill"),
        *_build_fleet_series(deployment, fleets, "DecoderQueueDepth", "Maximum", "decode"),
    )


def _build_ring_panel(deployment: Deployment) -> Panel:
    ring = build_fleet_series(deployment, names.VAD_FLEET, "RxRingOccupancy", "Maximum", label="fullest ring")
    return Panel("Receive queue depth, % of the ring", (ring,), MIN_PERIOD_S)


def _build_drop_panel(deployment: Deployment) -> Panel:
    series = (build_fleet_series(deployment, names.VAD_FLEET, "RxDropped", "Sum", part=reason) for reason in DropReason)
    return Panel("Packets dropped, by reason", tuple(series), is_stacked=True)


def _build_speech_loss_series(deployment: Deployment) -> tuple[Series, ...]:
    fleets = deployment.aws.asr
    return tuple(
        build_fleet_series(deployment, fleet.name, "SpeechLost", "Sum", part=loss)
        for fleet in fleets
        for loss in LossReason
    )


def _build_start_up_panels(deployment: Deployment) -> Iterator[Panel]:
    """Yield a panel with the start-up time of hosts by phase for each fleet.

    docs/cold-start.md contains the expected values.
    """
    for fleet in deployment.aws.asr:
        series = (
            build_fleet_series(deployment, fleet.name, "ColdStart", "Maximum", part=phase) for phase in StartPhase
        )
        yield Panel(f"Start of a host of {fleet.name}, seconds by phase", tuple(series), is_stacked=True)


def _build_headroom_panel(deployment: Deployment) -> Panel:
    return Panel(
        "Neuron headroom, %",
        _build_fleet_series(deployment, list_accelerated_fleets(deployment, "neuron"), "NeuronHeadroom", "Average"),
        MIN_PERIOD_S,
    )


def _build_gpu_panel(deployment: Deployment) -> Panel:
    return Panel(
        "GPU busy, %",
        _build_fleet_series(deployment, list_accelerated_fleets(deployment, "gpu"), "GpuBusy", "Average"),
        MIN_PERIOD_S,
    )


def _build_node_panel(deployment: Deployment, title: str, metric: str, statistic: StatisticName) -> Panel:
    return Panel(
        title, tuple(build_node_series(node, metric, statistic) for node in names.list_state_node_ids(deployment))
    )


def _build_host_panels(groups: list[str]) -> tuple[Panel, Panel]:
    return (
        Panel(
            "Hosts in service",
            tuple(build_group_series(group, "GroupInServiceInstances", "Average") for group in groups),
        ),
        Panel(
            "Hosts on their way",
            tuple(build_group_series(group, "GroupPendingInstances", "Average") for group in groups),
        ),
    )
