"""Dashboards of an Azure section: callers, GPUs and start-up times."""

from dataclasses import dataclass

from voice_blueprint.azure.contract import NAMESPACE
from voice_blueprint.azure.metrics import (
    PHASE_METRIC_LABEL,
    POOL_METRIC_LABEL,
    SERVICE_METRIC_LABEL,
    START_SECONDS,
    AgentMetric,
    CacheMetric,
    ClusterMetric,
    EngineMetric,
    GpuMetric,
    SpeechMetric,
    p95_query,
)
from voice_blueprint.contract.metrics import FLEET_DIMENSION, LOSS_DIMENSION, METRICS, REASON_DIMENSION
from voice_blueprint.file.model.azure import TtsService
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.observability import panels


@dataclass(frozen=True)
class Query:
    """A PromQL query.

    Attributes:
        legend: Name of its series; labels are in double braces.
    """

    promql: str
    legend: str


Panel = panels.Panel[Query]
Dashboard = panels.Dashboard[Query]


def dashboards(deployment: Deployment) -> tuple[Dashboard, ...]:
    callers = (_callers_dashboard(),) if deployment.azure.callers else ()
    agents = (_agents_dashboard(),) if deployment.azure.agents else ()
    return (*callers, *agents, _services_dashboard(deployment), _gpu_dashboard(), _starts_dashboard())


def _services_dashboard(deployment: Deployment) -> Dashboard:
    azure = deployment.azure
    speech = [service.name for service in azure.services if isinstance(service, TtsService)]
    first = [
        Query(
            p95_query(
                SpeechMetric.FIRST_SOUND if service.name in speech else EngineMetric.FIRST_TOKEN,
                **{SERVICE_METRIC_LABEL: service.name},
            ),
            service.name,
        )
        for service in azure.services
    ]
    return Dashboard(
        "services",
        "Are callers served? Requests, the wait for a first answer, and how much room replicas have.",
        (),
        (
            Panel("First answer, p95 s", tuple(first)),
            Panel(
                "Requests that run", _request_queries(EngineMetric.RUNNING, SpeechMetric.RUNNING, speech), stacked=True
            ),
            Panel(
                "Requests that wait", _request_queries(EngineMetric.WAITING, SpeechMetric.WAITING, speech), stacked=True
            ),
            Panel("KV cache in use, share", (_query_by_service(EngineMetric.KV_USAGE, "max"),)),
            Panel("LMCache memory in use, share", (_query_by_service(CacheMetric.USED, "max"),)),
            Panel(
                "Replicas",
                tuple(
                    Query(f'{metric}{{namespace="{NAMESPACE}"}}', f"{{{{horizontalpodautoscaler}}}} {suffix}")
                    for metric, suffix in ((ClusterMetric.SCALED, "now"), (ClusterMetric.SCALED_MAX, "at most"))
                ),
            ),
        ),
    )


def _callers_dashboard() -> Dashboard:
    def added(metric: str, *labels: str) -> Query:
        grouping = f" by ({', '.join(labels)})" if labels else ""
        return Query(
            f"60 * sum{grouping} (rate({METRICS[metric].series}[2m]))",
            " ".join((metric, *map(_grafana_variable, labels))),
        )

    def max_by_pod(metric: str) -> Query:
        return Query(f"max by ({FLEET_DIMENSION}) ({METRICS[metric].series})", _grafana_variable(FLEET_DIMENSION))

    waits = (Query(p95_query(METRICS[name].series), name) for name in ("TimeToFirstText", "TimeToFinal"))
    return Dashboard(
        "callers",
        "Access and transcription of callers: sessions, latency, capacity in use, losses.",
        (),
        (
            Panel("Sessions, a minute", (added("SessionsCreated"), added("SessionsRefused"))),
            Panel("First transcript, p95 ms", tuple(waits)),
            Panel("Open sockets of the fullest pod", (max_by_pod("OpenSockets"),)),
            Panel("Slots used in the fullest pod, %", (max_by_pod("SlotsTaken"),)),
            Panel("Packets dropped, a minute by reason", (added("RxDropped", REASON_DIMENSION),), stacked=True),
            Panel("Speech not transcribed, a minute by loss", (added("SpeechLost", LOSS_DIMENSION),), stacked=True),
        ),
    )


def _agents_dashboard() -> Dashboard:
    stages = f"histogram_quantile(0.95, sum by (le, stage) (rate({AgentMetric.STAGE}_bucket[5m])))"
    return Dashboard(
        "agents",
        "Are callers answered in time? Turns by their stages, interruptions, conversations against those admitted.",
        (),
        (
            Panel("Turn, p95 s", (Query(p95_query(AgentMetric.TURN), "end of speech to first sound"),)),
            Panel("Stages of a turn, p95 s", (Query(stages, _grafana_variable("stage")),)),
            Panel("Interruption to silence, p95 s", (Query(p95_query(AgentMetric.BARGE_IN), "onset to silence"),)),
            Panel(
                "Conversations",
                (Query(f"sum({AgentMetric.CONVERSATIONS})", "held"), Query(f"sum({AgentMetric.SLOTS})", "admitted")),
            ),
            Panel(
                "Callers refused, a minute by reason",
                (Query(f"60 * sum by (reason) (rate({AgentMetric.REFUSED}[2m]))", _grafana_variable("reason")),),
                stacked=True,
            ),
        ),
    )


def _gpu_dashboard() -> Dashboard:
    gpu = "{{hostname}} {{gpu}}"
    graphs = {
        "GPU busy, %": GpuMetric.BUSY,
        "Tensor cores active, share": GpuMetric.TENSOR_ACTIVE,
        "Memory traffic, share": GpuMetric.MEMORY_ACTIVE,
        "Memory in use, MiB": GpuMetric.MEMORY_USED,
        "NVLink sent, bytes/s": GpuMetric.NVLINK_SENT,
        "Temperature, °C": GpuMetric.TEMPERATURE,
        "Last XID error": GpuMetric.XID,
    }
    return Dashboard(
        "gpus",
        "What each GPU does. Busy is time with any kernel; tensor cores and memory traffic say what limits it.",
        (),
        tuple(Panel(title, (Query(f"max by (hostname, gpu) ({metric})", gpu),)) for title, metric in graphs.items()),
    )


def _starts_dashboard() -> Dashboard:
    within = f'{{namespace="{NAMESPACE}"}}'
    phases = (
        Query(f'max by (pod) ({START_SECONDS}{{{PHASE_METRIC_LABEL}="{phase}"}})', f"{{{{pod}}}} {phase}")
        for phase in ("node", "pull", "engine")
    )
    return Dashboard(
        "starts",
        "How long replicas take to serve: the wait for a node, image and checks, then the engine (docs/cold-start.md).",
        (),
        (
            Panel("Start of a pod, seconds by part", tuple(phases), stacked=True),
            Panel(
                "Replicas that are missing",
                (
                    Query(
                        f"{ClusterMetric.WANTED}{within} - {ClusterMetric.AVAILABLE}{within}",
                        "{{deployment}}",
                    ),
                ),
            ),
            Panel(
                "Restarts, an hour",
                (Query(f"increase({ClusterMetric.RESTARTS}{within}[1h])", "{{pod}} {{container}}"),),
            ),
        ),
    )


def _grafana_variable(label: str) -> str:
    return f"{{{{{label}}}}}"


def _request_queries(engine_label: EngineMetric, speech_label: SpeechMetric, speech: list[str]) -> tuple[Query, ...]:
    """Return the requests of every service. Speech is counted per pipeline, since each stage counts its requests."""
    if not speech:
        return (_query_by_service(engine_label),)
    others = f'{{{SERVICE_METRIC_LABEL}!~"{"|".join(speech)}"}}'
    return _query_by_service(engine_label, selector=others), _query_by_service(speech_label)


def _query_by_service(
    metric: EngineMetric | SpeechMetric | CacheMetric, fold: str = "sum", selector: str = ""
) -> Query:
    labels = f"{SERVICE_METRIC_LABEL}, {POOL_METRIC_LABEL}"
    return Query(
        f"{fold} by ({labels}) ({metric}{selector})",
        f"{_grafana_variable(SERVICE_METRIC_LABEL)} {_grafana_variable(POOL_METRIC_LABEL)}",
    )
