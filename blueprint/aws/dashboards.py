"""Dashboards as data: one for each tier, and the overview that is looked at first."""

from collections.abc import Callable, Iterator

from blueprint.aws import names
from blueprint.aws.alerts import CALLERS_AFFECTED, Alert, alerts
from blueprint.aws.metrics import API_GATEWAY, CONTAINER_SERVICE, NETWORK_LOAD_BALANCER
from blueprint.aws.series import Resource, Series, Statistic, of_fleet, of_group, of_log, of_node, of_service
from blueprint.contract.metrics import Allowance, DropReason, Loss, StartPhase
from blueprint.contract.network import Tier
from blueprint.file.model.aws import AsrFleet
from blueprint.file.model.deployment import Deployment
from blueprint.hosts import fleets_with
from blueprint.observability import panels

SHORTEST_S = 10
"""Shortest period that an alarm sees; a dashboard that shows more shows what nothing acts on."""


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
                    of_fleet(deployment, gateway, name, s, label=f"{label} {s}")
                    for name, label in (("TimeToFirstText", "first text"), ("TimeToFinal", "final"))
                    for s in ("p50", "p95")
                ),
            ),
            Panel(
                "Sessions, a minute",
                (
                    of_fleet(deployment, gateway, "SessionsCreated", "Sum", label="created"),
                    of_fleet(deployment, gateway, "SessionsRefused", "Sum", label="refused"),
                ),
            ),
            Panel("Silence dropped, %", (of_fleet(deployment, names.VAD_FLEET, "SilenceDropped", "Average"),)),
            _ring(deployment),
            _drops(deployment),
            Panel("Waiting for prefill and decode", _queues(deployment)),
            _headroom(deployment),
            _gpu(deployment),
            _nodes(deployment, "Valkey memory, %", "DatabaseMemoryUsagePercentage", "Maximum"),
            _nodes(deployment, "Valkey engine CPU, %", "EngineCPUUtilization", "Average"),
            Panel("Packets refused between our own addresses", (of_log(deployment, "InternalPacketsRejected", "all"),)),
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
                (of_fleet(deployment, gateway, "OpenSockets", "Maximum", label="sockets"),),
            ),
            Panel(
                "Gateway service, % of what it reserves",
                (
                    of_service(CONTAINER_SERVICE, "CPUUtilization", "Average", service, "CPU"),
                    of_service(CONTAINER_SERVICE, "MemoryUtilization", "Average", service, "memory"),
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
            Panel("Errors in the gateway's log", (of_log(deployment, "GatewayErrors", "errors"),)),
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
                    of_fleet(deployment, fleet, "Conversations", "Maximum", label="fullest"),
                    of_fleet(deployment, fleet, "Conversations", "Average", label="mean"),
                ),
            ),
            Panel("Callers refused", (of_fleet(deployment, fleet, "ConversationsRefused", "Sum", label="refused"),)),
            *(
                Panel(title, tuple(of_fleet(deployment, fleet, name, s, label=s) for s in ("p50", "p95")))
                for title, name in (
                    ("End of a question to its answer, ms", "TurnLatency"),
                    ("Interruption to silence, ms", "BargeInLatency"),
                )
            ),
            Panel("Targets", _targets(Resource.AGENT_TARGETS, Resource.AGENT_LOAD_BALANCER, "agent")),
            Panel(
                "Agent service, % of what it reserves",
                (
                    of_service(CONTAINER_SERVICE, "CPUUtilization", "Average", service, "CPU"),
                    of_service(CONTAINER_SERVICE, "MemoryUtilization", "Average", service, "memory"),
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
                tuple(of_fleet(deployment, fleet, "AllowanceExceeded", "Sum", part=each) for each in Allowance),
                stacked=True,
            ),
            Panel("Silence dropped, %", (of_fleet(deployment, fleet, "SilenceDropped", "Average"),)),
            Panel(
                "Live sessions of a host",
                (
                    of_fleet(deployment, fleet, "VadSessions", "Maximum", label="fullest"),
                    of_fleet(deployment, fleet, "VadSessions", "Average", label="mean"),
                ),
            ),
            Panel("Targets", _targets(Resource.VAD_TARGETS, Resource.PUBLIC_LOAD_BALANCER, "VAD")),
            *_hosts(names.vad_groups(deployment)),
            Panel("Launches given up", (of_log(deployment, "VadHostsAbandoned", "hosts"),)),
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
            Panel("Free slots of the emptiest host", _each(deployment, fleets, "FreeSlots", "Maximum"), SHORTEST_S),
            Panel("Real-time factor (below 1 keeps up)", _each(deployment, fleets, "RealTimeFactor", "Average")),
            Panel("Waiting for prefill and decode", _queues(deployment)),
            Panel("Speech not transcribed, by loss", _losses(deployment), stacked=True),
            *_hosts([names.group(deployment, fleet.name) for fleet in fleets]),
            Panel("Launches given up", (of_log(deployment, "AsrHostsAbandoned", "hosts"),)),
            *_starts(deployment),
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


def _alarms(deployment: Deployment, chosen: Callable[[Alert], bool]) -> tuple[str, ...]:
    return tuple(alert.alarm_name(deployment) for alert in alerts(deployment) if chosen(alert))


def _callers() -> tuple[Series, ...]:
    return (
        _balancer("ActiveFlowCount_UDP", "Average", "RTP flows"),
        _balancer("ActiveFlowCount_TLS", "Average", "WebSockets"),
    )


def _balancer(metric: str, statistic: Statistic, label: str) -> Series:
    return of_service(NETWORK_LOAD_BALANCER, metric, statistic, (Resource.PUBLIC_LOAD_BALANCER,), label)


def _targets(targets: Resource, balancer: Resource, label: str) -> tuple[Series, ...]:
    return (
        of_service(NETWORK_LOAD_BALANCER, "HealthyHostCount", "Minimum", (targets, balancer), f"{label} healthy"),
        of_service(NETWORK_LOAD_BALANCER, "UnHealthyHostCount", "Maximum", (targets, balancer), f"{label} unhealthy"),
    )


def _api(metric: str, statistic: Statistic, label: str) -> Series:
    return of_service(API_GATEWAY, metric, statistic, (Resource.API, Resource.API_STAGE), label)


def _each(
    deployment: Deployment, fleets: tuple[AsrFleet, ...], metric: str, statistic: Statistic, label: str = ""
) -> tuple[Series, ...]:
    return tuple(
        of_fleet(deployment, fleet.name, metric, statistic, label=f"{fleet.name} {label}".strip()) for fleet in fleets
    )


def _queues(deployment: Deployment) -> tuple[Series, ...]:
    fleets = deployment.aws.asr
    return (
        *_each(deployment, fleets, "EncoderQueueDepth", "Maximum", "prefill"),
        *_each(deployment, fleets, "DecoderQueueDepth", "Maximum", "decode"),
    )


def _ring(deployment: Deployment) -> Panel:
    ring = of_fleet(deployment, names.VAD_FLEET, "RxRingOccupancy", "Maximum", label="fullest ring")
    return Panel("Receive queue depth, % of the ring", (ring,), SHORTEST_S)


def _drops(deployment: Deployment) -> Panel:
    series = (of_fleet(deployment, names.VAD_FLEET, "RxDropped", "Sum", part=reason) for reason in DropReason)
    return Panel("Packets dropped, by reason", tuple(series), stacked=True)


def _losses(deployment: Deployment) -> tuple[Series, ...]:
    fleets = deployment.aws.asr
    return tuple(of_fleet(deployment, fleet.name, "SpeechLost", "Sum", part=loss) for fleet in fleets for loss in Loss)


def _starts(deployment: Deployment) -> Iterator[Panel]:
    """What a host's start takes, by phase: the budget is docs/cold-start.md."""
    for fleet in deployment.aws.asr:
        series = (of_fleet(deployment, fleet.name, "ColdStart", "Maximum", part=phase) for phase in StartPhase)
        yield Panel(f"Start of a host of {fleet.name}, seconds by phase", tuple(series), stacked=True)


def _headroom(deployment: Deployment) -> Panel:
    return Panel(
        "Neuron headroom, %",
        _each(deployment, fleets_with(deployment, "neuron"), "NeuronHeadroom", "Average"),
        SHORTEST_S,
    )


def _gpu(deployment: Deployment) -> Panel:
    return Panel("GPU busy, %", _each(deployment, fleets_with(deployment, "gpu"), "GpuBusy", "Average"), SHORTEST_S)


def _nodes(deployment: Deployment, title: str, metric: str, statistic: Statistic) -> Panel:
    return Panel(title, tuple(of_node(node, metric, statistic) for node in names.state_nodes(deployment)))


def _hosts(groups: list[str]) -> tuple[Panel, Panel]:
    return (
        Panel("Hosts in service", tuple(of_group(group, "GroupInServiceInstances", "Average") for group in groups)),
        Panel("Hosts on their way", tuple(of_group(group, "GroupPendingInstances", "Average") for group in groups)),
    )
