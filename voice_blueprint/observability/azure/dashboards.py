"""Dashboards for an Azure section: callers, GPUs and start-up times."""

from dataclasses import dataclass

from voice_blueprint.azure.contract import NAMESPACE
from voice_blueprint.azure.metrics import (
    PHASE_METRIC_LABEL,
    POD_START_METRIC,
    POOL_METRIC_LABEL,
    SERVICE_METRIC_LABEL,
    AgentMetric,
    CacheMetric,
    ClusterMetric,
    EngineMetric,
    GpuMetric,
    SpeechMetric,
    build_p95_query,
)
from voice_blueprint.contract.metrics import FLEET_DIMENSION, LOSS_DIMENSION, METRICS, REASON_DIMENSION
from voice_blueprint.file.model.azure import TtsService
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.observability import panels


@dataclass(frozen=True)
class PrometheusQuery:
    """A PromQL query.

    Attributes:
        legend: Name of its series; labels are in double braces.
    """

    promql: str
    legend: str


Panel = panels.Panel[PrometheusQuery]
Dashboard = panels.Dashboard[PrometheusQuery]


def build_dashboards(deployment: Deployment) -> tuple[Dashboard, ...]:
    callers = (_build_callers_dashboard(),) if deployment.azure.callers else ()
    agents = (_build_agents_dashboard(),) if deployment.azure.agents else ()
    return (
        *callers,
        *agents,
        _build_services_dashboard(deployment),
        _build_gpu_dashboard(),
        _build_startup_dashboard(),
    )


def _build_services_dashboard(deployment: Deployment) -> Dashboard:
    azure = deployment.azure
    speech = [service.name for service in azure.services if isinstance(service, TtsService)]
    first = [
        PrometheusQuery(
            build_p95_query(
                SpeechMetric.TIME_TO_FIRST_AUDIO if service.name in speech else EngineMetric.TIME_TO_FIRST_TOKEN,
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
                "Requests that run",
                _build_request_queries(EngineMetric.RUNNING, SpeechMetric.RUNNING, speech),
                is_stacked=True,
            ),
            Panel(
                "Requests that wait",
                _build_request_queries(EngineMetric.WAITING, SpeechMetric.WAITING, speech),
                is_stacked=True,
            ),
            Panel("KV cache in use, share", (_build_query_by_service(EngineMetric.KV_USAGE, "max"),)),
            Panel("LMCache memory in use, share", (_build_query_by_service(CacheMetric.L1_USAGE_RATIO, "max"),)),
            Panel(
                "Replicas",
                tuple(
                    PrometheusQuery(f'{metric}{{namespace="{NAMESPACE}"}}', f"{{{{horizontalpodautoscaler}}}} {suffix}")
                    for metric, suffix in (
                        (ClusterMetric.AUTOSCALER_REPLICAS, "now"),
                        (ClusterMetric.AUTOSCALER_MAX_REPLICAS, "at most"),
                    )
                ),
            ),
        ),
    )


def _build_callers_dashboard() -> Dashboard:
    def build_rate_query(metric: str, *labels: str) -> PrometheusQuery:
        grouping = f" by ({', '.join(labels)})" if labels else ""
        return PrometheusQuery(
            f"60 * sum{grouping} (rate({METRICS[metric].prometheus_name}[2m]))",
            " ".join((metric, *map(_format_grafana_variable, labels))),
        )

    def build_max_by_pod_query(metric: str) -> PrometheusQuery:
        return PrometheusQuery(
            f"max by ({FLEET_DIMENSION}) ({METRICS[metric].prometheus_name})", _format_grafana_variable(FLEET_DIMENSION)
        )

    waits = (
        PrometheusQuery(build_p95_query(METRICS[name].prometheus_name), name)
        for name in ("TimeToFirstText", "TimeToFinal")
    )
    return Dashboard(
        "callers",
        "Access and transcription of callers: sessions, latency, capacity in use, losses.",
        (),
        (
            Panel("Sessions, a minute", (build_rate_query("SessionsCreated"), build_rate_query("SessionsRefused"))),
            Panel("First transcript, p95 ms", tuple(waits)),
            Panel("Open sockets of the fullest pod", (build_max_by_pod_query("OpenSockets"),)),
            Panel("Slots used in the fullest pod, %", (build_max_by_pod_query("SlotsTaken"),)),
            Panel(
                "Packets dropped, a minute by reason",
                (build_rate_query("RxDropped", REASON_DIMENSION),),
                is_stacked=True,
            ),
            Panel(
                "Speech not transcribed, a minute by loss",
                (build_rate_query("SpeechLost", LOSS_DIMENSION),),
                is_stacked=True,
            ),
        ),
    )


def _build_agents_dashboard() -> Dashboard:
    stages = f"histogram_quantile(0.95, sum by (le, stage) (rate({AgentMetric.STAGE}_bucket[5m])))"
    return Dashboard(
        "agents",
        "Are callers answered in time? Turns by their stages, interruptions, conversations against those admitted.",
        (),
        (
            Panel("Turn, p95 s", (PrometheusQuery(build_p95_query(AgentMetric.TURN), "end of speech to first sound"),)),
            Panel("Stages of a turn, p95 s", (PrometheusQuery(stages, _format_grafana_variable("stage")),)),
            Panel(
                "Interruption to silence, p95 s",
                (PrometheusQuery(build_p95_query(AgentMetric.BARGE_IN), "onset to silence"),),
            ),
            Panel(
                "Conversations",
                (
                    PrometheusQuery(f"sum({AgentMetric.CONVERSATIONS})", "held"),
                    PrometheusQuery(f"sum({AgentMetric.SLOTS})", "admitted"),
                ),
            ),
            Panel(
                "Callers refused, a minute by reason",
                (
                    PrometheusQuery(
                        f"60 * sum by (reason) (rate({AgentMetric.REFUSED}[2m]))", _format_grafana_variable("reason")
                    ),
                ),
                is_stacked=True,
            ),
        ),
    )


def _build_gpu_dashboard() -> Dashboard:
    gpu = "{{hostname}} {{gpu}}"
    graphs = {
        "GPU busy, %": GpuMetric.UTILIZATION,
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
        tuple(
            Panel(title, (PrometheusQuery(f"max by (hostname, gpu) ({metric})", gpu),))
            for title, metric in graphs.items()
        ),
    )


def _build_startup_dashboard() -> Dashboard:
    within = f'{{namespace="{NAMESPACE}"}}'
    phases = (
        PrometheusQuery(f'max by (pod) ({POD_START_METRIC}{{{PHASE_METRIC_LABEL}="{phase}"}})', f"{{{{pod}}}} {phase}")
        for phase in ("node", "pull", "engine")
    )
    return Dashboard(
        "starts",
        "How long replicas take to serve: the wait for a node, image and checks, then the engine (docs/cold-start.md).",
        (),
        (
            Panel("Start of a pod, seconds by part", tuple(phases), is_stacked=True),
            Panel(
                "Replicas that are missing",
                (
                    PrometheusQuery(
                        f"{ClusterMetric.DESIRED_REPLICAS}{within} - {ClusterMetric.AVAILABLE_REPLICAS}{within}",
                        "{{deployment}}",
                    ),
                ),
            ),
            Panel(
                "Restarts, an hour",
                (PrometheusQuery(f"increase({ClusterMetric.RESTARTS}{within}[1h])", "{{pod}} {{container}}"),),
            ),
        ),
    )


def _format_grafana_variable(label: str) -> str:
    return f"{{{{{label}}}}}"


def _build_request_queries(
    engine_label: EngineMetric, speech_label: SpeechMetric, speech: list[str]
) -> tuple[PrometheusQuery, ...]:
    """Return the requests to every service. Speech requests are counted once per pipeline, not per stage."""
    if not speech:
        return (_build_query_by_service(engine_label),)
    others = f'{{{SERVICE_METRIC_LABEL}!~"{"|".join(speech)}"}}'
    return _build_query_by_service(engine_label, selector=others), _build_query_by_service(speech_label)


def _build_query_by_service(
    metric: EngineMetric | SpeechMetric | CacheMetric, fold: str = "sum", selector: str = ""
) -> PrometheusQuery:
    labels = f"{SERVICE_METRIC_LABEL}, {POOL_METRIC_LABEL}"
    return PrometheusQuery(
        f"{fold} by ({labels}) ({metric}{selector})",
        f"{_format_grafana_variable(SERVICE_METRIC_LABEL)} {_format_grafana_variable(POOL_METRIC_LABEL)}",
    )
