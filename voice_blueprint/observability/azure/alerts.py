"""Alerts for an Azure section. Each becomes a rule of the managed Prometheus.

An alert requires an action by an operator; other metrics are only shown on dashboards. The id of an alert is the name
of its runbook, `docs/runbooks/azure/<id>.md`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from voice_blueprint import catalog
from voice_blueprint.azure.contract import GPU_RESOURCE, NAMESPACE, Component
from voice_blueprint.azure.metrics import (
    PHASE_METRIC_LABEL,
    POD_START_METRIC,
    ROLE_METRIC_LABEL,
    SERVICE_METRIC_LABEL,
    AgentMetric,
    ClusterMetric,
    EngineMetric,
    GpuMetric,
    SpeechMetric,
    build_p95_query,
    build_sum_query,
)
from voice_blueprint.azure.names import build_engine_workload_name
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.metrics import (
    FLEET_DIMENSION,
    LOSS_DIMENSION,
    METRICS,
    REASON_DIMENSION,
    DropReason,
    LossReason,
)
from voice_blueprint.file.model.azure import Azure, AzureService, PrefillDecodeCell, TtsService
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.scaling import Comparison
from voice_blueprint.hosts import AGENT_POD_IMAGES, IMAGES_BY_CALLER_TIER, lacks_digests, list_service_images
from voice_blueprint.observability.alerting import (
    ALERT_CONDITION_BY_ID,
    BURN_RATE_WINDOWS,
    ERROR_BUDGET_ALERT_ID,
    MIN_REFUSALS,
    Objective,
    build_objectives,
)
from voice_blueprint.observability.azure.scaling import REPLICA_TARGET_UTILIZATION, build_scaling_triggers

BUDGET_RUNBOOK = "budget"
"""Runbook for the budget's notifications."""
MAX_BUDGET_SPENT_PERCENT = 80
MAX_BUDGET_FORECAST_PERCENT = 100

SATURATION_THRESHOLD = 0.95
"""Utilization of a replica at which scaling was evidently insufficient, since scaling acts at
``REPLICA_TARGET_UTILIZATION``."""
MAX_FIRST_OUTPUT_S = 1.0
"""Threshold for the first token or audio, since users notice a wait of more than 1 s:
https://www.nngroup.com/articles/response-times-3-important-limits/"""

COUNTER_WINDOW_MINUTES = 5
"""Window for increases in a counter."""
MAX_CAPACITY_WAIT_MINUTES = 15
"""Maximum expected wait for capacity. A new node and a cold engine need 15 to 25 minutes; a longer wait has another
cause."""
MAX_START_MINUTES = 45
MAX_UNREADY_MINUTES = 10
"""Time for which a pod that is no longer ready is treated as stuck. After this time, the pod counts as missing."""
TOKEN_WINDOW_MINUTES = 5
"""Window for generated tokens. A probe requests a token from an idle engine every ten seconds."""
MAX_GPU_START_MINUTES = 10
"""Time for a new node to offer its GPUs. Driver and device plugin take two to five minutes; some nodes never offer a
GPU (https://github.com/kaito-project/kaito/issues/2326)."""


@dataclass(frozen=True)
class Alert:
    """An alert.

    Attributes:
        meaning: Sentence for the operator who is paged.
        query: PromQL expression; each of its series fires separately.
        minutes: Duration of the condition before the alert fires.
        affects_callers: Whether callers are affected; such an alert pages an operator.
        target: The affected part, if several parts can raise the same alert.
        unit: Unit of the threshold, for messages.
    """

    id: str
    meaning: str
    query: str
    comparison: Comparison
    threshold: float
    minutes: int
    affects_callers: bool = False
    target: str | None = None
    unit: str = ""

    @property
    def name(self) -> str:
        return "-".join(filter(None, (self.id, self.target)))

    @property
    def expression(self) -> str:
        """PromQL that returns a result while the condition of the alert is met."""
        sign = ">" if self.comparison is Comparison.ABOVE else "<"
        return f"{self.query} {sign} {self.threshold:g}"


@dataclass(frozen=True)
class RecordingRule:
    """Series that a recording rule creates."""

    record: str
    query: str
    labels: dict[str, str]


DEPLOYMENT_RULE_GROUPS = ("cluster", "callers", "agents", "objectives", "starts")
"""Names of the rule groups for the deployment itself; a service's rule group has the service's name."""


def build_alerts(deployment: Deployment) -> tuple[Alert, ...]:
    """Return all alerts that apply to a deployment. Parts that still lack an image raise no alerts."""
    return tuple(alert for group in group_alerts(deployment).values() for alert in group)


def group_alerts(deployment: Deployment) -> dict[str, tuple[Alert, ...]]:
    """Return the alerts by group. Azure allows 20 rules per group."""
    running = [each for each in deployment.azure.services if not lacks_digests(deployment, list_service_images(each))]
    callers = tuple(_build_caller_alerts(deployment)) if deployment.azure.callers else ()
    agents = deployment.azure.agents and not lacks_digests(deployment, AGENT_POD_IMAGES)
    return {
        "cluster": tuple(_build_cluster_alerts(deployment)),
        **({"callers": callers} if callers else {}),
        **({"agents": tuple(_build_agent_alerts())} if agents else {}),
        **({"objectives": tuple(_build_objective_alerts(deployment, agents=bool(agents)))} if callers else {}),
        **{service.name: tuple(_build_service_alerts(deployment, service)) for service in running},
    }


def build_recording_rules() -> tuple[RecordingRule, ...]:
    """Return the recording rules for the duration of each phase of a pod's start, seconds.

    The last phase ends when the engine reports that it is ready.
    """

    def build_timestamp_query(metric: ClusterMetric) -> str:
        return _build_aggregated_query("pod", metric, namespace=NAMESPACE)

    # Both engines of a cell start at the same time.
    engine = f'max by (pod) ({ClusterMetric.STARTED_AT}{{namespace="{NAMESPACE}",container=~"engine|decode"}})'
    scheduled = build_timestamp_query(ClusterMetric.SCHEDULED_AT)
    parts = {
        "node": f"{scheduled} - {build_timestamp_query(ClusterMetric.CREATED_AT)}",
        "pull": f"{engine} - {scheduled}",
        "engine": f"{build_timestamp_query(ClusterMetric.READY_AT)} - {engine}",
    }
    return tuple(RecordingRule(POD_START_METRIC, query, {PHASE_METRIC_LABEL: phase}) for phase, query in parts.items())


def _build_cluster_alerts(deployment: Deployment) -> Iterator[Alert]:
    """Yield the alerts that are independent of services."""
    azure = deployment.azure
    yield _build_telemetry_silent_alert(
        "Nothing has come from the cluster for five minutes: scaling holds its replicas, and alerts are blind.",
        f"absent({ClusterMetric.NODE_INFO})",
        "cluster",
    )
    if not lacks_digests(deployment, (Image.ROUTER,)):
        yield _build_down_alert("router", [Component.ROUTER.value], 2)
    # Both operands have the same labels. A Deployment with equal bounds is always at its maximum.
    maximum = _build_metric_query(ClusterMetric.AUTOSCALER_MAX_REPLICAS)
    scalable = f"({maximum} > {_build_metric_query(ClusterMetric.AUTOSCALER_MIN_REPLICAS)})"
    yield Alert(
        "replicas-at-maximum",
        "A service has had its maximum of replicas for a quarter of an hour: it cannot grow when load does.",
        f"{_build_metric_query(ClusterMetric.AUTOSCALER_REPLICAS)} / {scalable}",
        Comparison.ABOVE,
        0.99,
        MAX_CAPACITY_WAIT_MINUTES,
        unit=" of the maximum",
    )
    yield Alert(
        "replicas-missing",
        "Replicas that scaling asks for have not become ready: no GPU node has come, or the engine does not start.",
        f"{_build_metric_query(ClusterMetric.DESIRED_REPLICAS)} - "
        f"{_build_metric_query(ClusterMetric.AVAILABLE_REPLICAS)}",
        Comparison.ABOVE,
        0,
        MAX_START_MINUTES,
    )
    yield Alert(
        "engine-restarts",
        "A container has restarted three times within an hour: its callers lose their sessions each time.",
        f"increase({_build_metric_query(ClusterMetric.RESTARTS)}[1h])",
        Comparison.ABOVE,
        2,
        1,
        affects_callers=True,
    )
    yield Alert(
        "model-fetch-failed",
        "A model could not be fetched: engines that need it do not start.",
        _build_metric_query(ClusterMetric.JOB_FAILED),
        Comparison.ABOVE,
        0,
        1,
    )
    yield Alert(
        "node-not-ready",
        "A node has not answered the cluster for ten minutes: what ran on it is away.",
        _build_aggregated_query("node", ClusterMetric.NODE_CONDITION, condition="Ready", status="true"),
        Comparison.BELOW,
        1,
        10,
    )
    if azure.pools and not lacks_digests(deployment, (Image.DEVICE_PLUGIN,)):
        yield Alert(
            "gpus-missing",
            "A node of a GPU pool offers fewer GPUs than its size has: engines wait, and the node is paid for.",
            _build_missing_gpus_query(azure),
            Comparison.ABOVE,
            0,
            MAX_GPU_START_MINUTES,
            unit=" GPUs expected",
        )
    yield Alert(
        "gpu-error",
        "A GPU's driver has reported an error (XID): the engine on it may stop or give wrong results.",
        f'max by (hostname, gpu, xid) ({GpuMetric.XID_COUNT}{{xid!="0"}})',
        Comparison.ABOVE,
        0,
        1,
    )


def _build_missing_gpus_query(azure: Azure) -> str:
    """Return PromQL with a series for each node that lacks GPUs. AKS names nodes after their pool (aks-POOL-...)."""
    by_count: dict[int, list[str]] = {}
    for pool in azure.pools:
        by_count.setdefault(catalog.vm_sizes()[pool.vm_size].gpu_count, []).append(pool.name)
    allocatable = _build_aggregated_query(
        "node", ClusterMetric.ALLOCATABLE, resource=GPU_RESOURCE.replace(".", "_").replace("/", "_")
    )
    parts = (
        f'({count} * max by (node) ({ClusterMetric.NODE_INFO}{{node=~"aks-({"|".join(names)})-.*"}}) '
        f"unless on (node) ({allocatable} >= {count}))"
        for count, names in sorted(by_count.items())
    )
    return f"({' or '.join(parts)})"


_METRIC_BY_TIER = {Component.GATEWAY: "OpenSockets", Component.VAD: "VadSessions", Component.ASR: "FreeSlots"}
"""Metric that every pod of a caller tier publishes."""


def _build_caller_alerts(deployment: Deployment) -> Iterator[Alert]:
    """Yield the alerts of the tiers that serve callers, with AWS's thresholds over five minutes instead of two."""
    running = [tier for tier, images in IMAGES_BY_CALLER_TIER.items() if not lacks_digests(deployment, images)]
    for tier in running:
        yield _build_down_alert(tier.value, [tier.value], 2)
        published = (
            f"sum({METRICS[_METRIC_BY_TIER[tier]].prometheus_name}{_format_label_selector({FLEET_DIMENSION: tier})})"
        )
        yield _build_telemetry_silent_alert(
            f"Pods of {tier} are ready and have published nothing for five minutes: alerts do not see them.",
            f"({_build_deployments_query(ClusterMetric.READY_REPLICAS, [tier.value])} unless on () {published})",
            tier.value,
        )
    if Component.GATEWAY in running:
        refused, created = (
            f"sum({_build_increase_query(f'Sessions{outcome}', FLEET_DIMENSION, Component.GATEWAY)})"
            for outcome in ("Refused", "Created")
        )
        has_minimum = f"({refused} >= bool {MIN_REFUSALS * COUNTER_WINDOW_MINUTES})"
        yield _build_shared_alert(
            "sessions-refused", f"{refused} / ({refused} + {created}) * 100 * {has_minimum}", 2, unit=" %"
        )
        yield _build_shared_alert("front-door-closed", f"avg({METRICS['FrontDoorAnswers'].prometheus_name})", 5)
        callers = deployment.azure.callers
        # Without pods of both tiers no call is transcribed.
        if (
            callers
            and {Component.VAD, Component.ASR} <= set(running)
            and callers.vad.replicas.min
            and callers.asr.replicas.min
        ):
            yield _build_shared_alert(
                "synthetic-call-fails", f"avg({METRICS['SyntheticCallSucceeds'].prometheus_name})", 5
            )
        yield _build_shared_alert("certificate-expires", f"min({METRICS['CertificateDays'].prometheus_name})", 60)
        yield _build_shared_alert(
            "first-transcript-slow", build_p95_query(METRICS["TimeToFinal"].prometheus_name), 10, unit=" ms"
        )
    if Component.VAD in running:
        dropped_packets = (
            f"sum by ({REASON_DIMENSION}) ({_build_increase_query('RxDropped', REASON_DIMENSION, *_OVERLOAD_REASONS)})"
        )
        yield _build_shared_alert("vad-packets-dropped", dropped_packets, 2)
        yield _build_shared_alert("vad-stopped", f"max by (pod) ({METRICS['VadStopped'].prometheus_name})", 2)
    if Component.ASR in running:
        yield _build_shared_alert("asr-slots-exhausted", f"max({METRICS['FreeSlots'].prometheus_name})", 1)
        lost_speech = _build_increase_query("SpeechLost", LOSS_DIMENSION, *_UNTRANSCRIBED_LOSS_REASONS)
        yield _build_shared_alert("speech-lost", f"sum by ({LOSS_DIMENSION}) ({lost_speech})", 2)


def _build_objective_alerts(deployment: Deployment, *, agents: bool) -> Iterator[Alert]:
    """Yield an alert for each objective and pair of windows; both windows must breach."""
    if lacks_digests(deployment, IMAGES_BY_CALLER_TIER[Component.GATEWAY]):
        return
    for objective in build_objectives(deployment.azure.observability.objectives, agents=agents):
        for windows in BURN_RATE_WINDOWS:
            threshold = objective.calculate_threshold_percent(windows)
            short, long = (
                _build_bad_percent_query(objective, f"{each // 60}m") for each in (windows.short_s, windows.long_s)
            )
            yield Alert(
                ERROR_BUDGET_ALERT_ID,
                objective.format_meaning(windows),
                f"({short} and on () ({long} > {threshold:g}))",
                Comparison.ABOVE,
                threshold,
                1,
                affects_callers=windows.pages_operators,
                target=f"{objective.id}-{windows.name}",
                unit=" %",
            )


def _build_bad_percent_query(objective: Objective, window: str) -> str:
    """Return PromQL for the percentage of bad calls or turns in a window, or 0 for fewer than ``MIN_REFUSALS``."""

    def build_series_increase_query(series: str, labels: str = "") -> str:
        return f"sum(increase({series}{{{labels}}}[{window}]))"

    if objective.within_ms is None:
        late_count, created = (
            build_series_increase_query(METRICS[f"Sessions{outcome}"].prometheus_name)
            for outcome in ("Refused", "Created")
        )
        all_events = f"({late_count} + {created})"
    else:
        series = METRICS["TimeToFinal"].prometheus_name if objective.id == "transcript" else AgentMetric.TURN
        # Bounds are spelt as by prometheus_client: milliseconds for the gateway, seconds for agents.
        bound = float(objective.within_ms) if objective.id == "transcript" else objective.within_ms / 1000
        all_events = build_series_increase_query(f"{series}_count")
        in_time_count = build_series_increase_query(f"{series}_bucket", f'le="{bound}"')
        late_count = f"({all_events} - {in_time_count})"
    return f"{late_count} / {all_events} * 100 * ({late_count} >= bool {MIN_REFUSALS})"


def _build_agent_alerts() -> Iterator[Alert]:
    """Yield the alerts on turns, interruptions and refused conversations."""
    agent = Component.AGENT.value
    yield _build_down_alert(agent, [agent], 2)
    yield _build_telemetry_silent_alert(
        "Agents are ready and have published nothing for five minutes: scaling does not see their conversations.",
        f"({_build_deployments_query(ClusterMetric.READY_REPLICAS, [agent])} unless on () "
        f"sum({AgentMetric.CONVERSATIONS}))",
        agent,
    )
    yield _build_shared_alert("conversations-refused", f"sum by (reason) (increase({AgentMetric.REFUSED}[5m]))", 2)
    yield _build_shared_alert("turn-slow", build_p95_query(AgentMetric.TURN), 10, unit=" s", per_unit=1000)
    yield _build_shared_alert("barge-in-slow", build_p95_query(AgentMetric.BARGE_IN), 10, unit=" s", per_unit=1000)


_OVERLOAD_REASONS = (DropReason.RING_FULL, DropReason.NO_HOST, DropReason.SHED)
_UNTRANSCRIBED_LOSS_REASONS = (LossReason.REFUSED, LossReason.LOST_CHUNKS, LossReason.ABANDONED)


def _build_service_alerts(deployment: Deployment, service: AzureService) -> Iterator[Alert]:
    azure, labels = deployment.azure, {SERVICE_METRIC_LABEL: service.name}
    by_pool = build_scaling_triggers(azure, service)
    names = [build_engine_workload_name(service, pool) for pool in by_pool]
    speech = isinstance(service, TtsService)
    running = SpeechMetric.RUNNING if speech else EngineMetric.RUNNING
    # Without a minimum, no replica is required.
    if any(service.get_replica_bounds(pool).min for pool in by_pool):
        yield _build_down_alert(service.name, names, 5)
    yield _build_telemetry_silent_alert(
        f"Engines of {service.name} are ready and have published nothing for five minutes: scaling does not see them.",
        f"({_build_deployments_query(ClusterMetric.READY_REPLICAS, names)} unless on () "
        f"{build_sum_query(running, **labels)})",
        service.name,
    )
    yield _build_hang_alert(service, names)
    for pool, pool_triggers in by_pool.items():
        replicas = (
            f"{_build_deployments_query(ClusterMetric.READY_REPLICAS, [build_engine_workload_name(service, pool)])}"
        )
        for trigger in pool_triggers:
            yield Alert(
                "service-saturated",
                f"{service.name} on {pool} has had more {trigger.name} than its replicas carry for a quarter of an "
                "hour: growing does not help.",
                f"({trigger.query}) / {replicas}",
                Comparison.ABOVE,
                trigger.target_per_replica * SATURATION_THRESHOLD / REPLICA_TARGET_UTILIZATION,
                MAX_CAPACITY_WAIT_MINUTES,
                target=f"{build_engine_workload_name(service, pool)}-{trigger.name}",
                unit=" a replica",
            )
    first = "sound" if speech else "word"
    yield Alert(
        "first-answer-slow",
        f"One request in twenty to {service.name} waits more than a second for the first {first}.",
        build_p95_query(SpeechMetric.TIME_TO_FIRST_AUDIO if speech else EngineMetric.TIME_TO_FIRST_TOKEN, **labels),
        Comparison.ABOVE,
        MAX_FIRST_OUTPUT_S,
        10,
        affects_callers=True,
        target=service.name,
        unit=" s",
    )
    if speech:
        failed, succeeded = (
            _build_rate_query(each, **labels)
            for each in (SpeechMetric.FAILED_REQUESTS, SpeechMetric.SUCCESSFUL_REQUESTS)
        )
        yield Alert(
            "speech-fails",
            f"{service.name} fails more than one request in a hundred.",
            f"{failed} / ({failed} + {succeeded})",
            Comparison.ABOVE,
            0.01,
            5,
            affects_callers=True,
            target=service.name,
        )
    if isinstance(service, PrefillDecodeCell):
        yield Alert(
            "kv-transfers-fail",
            f"KV cache does not reach the decode engines of {service.name}: they prefill again, and callers wait.",
            f"sum(increase({EngineMetric.FAILED_TRANSFERS}{_format_label_selector(labels)}[10m]))",
            Comparison.ABOVE,
            0,
            5,
            target=service.name,
        )


def _build_down_alert(target: str, deployments: list[str], minutes: int) -> Alert:
    return Alert(
        "service-down",
        f"{target} has no replica that takes requests.",
        _build_deployments_query(ClusterMetric.AVAILABLE_REPLICAS, deployments),
        Comparison.BELOW,
        1,
        minutes,
        affects_callers=True,
        target=target,
    )


def _build_hang_alert(service: AzureService, deployments: list[str]) -> Alert:
    """Return the alert on engines that hang, as detected by probes or by the rate of generated tokens."""
    pods = "|".join(f"{name}-[a-z0-9]+-[a-z0-9]+" for name in deployments)
    ready = f'{ClusterMetric.POD_READY}{{namespace="{NAMESPACE}",condition="true",pod=~"{pods}"}}'
    generated = SpeechMetric.GENERATION_TOKENS if isinstance(service, TtsService) else EngineMetric.GENERATION_TOKENS
    tokens = (
        f"increase({generated}{_format_label_selector({SERVICE_METRIC_LABEL: service.name})}[{TOKEN_WINDOW_MINUTES}m])"
    )
    was = f"max by (pod) (max_over_time({ready}[{MAX_UNREADY_MINUTES}m]))"
    lost_speech = (
        f"({was} - max by (pod) ({ready}) > 0 unless on (pod) {_build_metric_query(ClusterMetric.DELETED_AT)})"
    )
    # In a cell, both engines must generate tokens.
    idle = f"(max by (pod) ({ready}) and on (pod) min by (pod) (sum by (pod, {ROLE_METRIC_LABEL}) ({tokens})) == 0)"
    return Alert(
        "engine-stuck",
        f"An engine of {service.name} that took requests answers none: it hangs, has crashed, or its node is gone.",
        f"({lost_speech} or {idle})",
        Comparison.ABOVE,
        0,
        1,
        affects_callers=True,
        target=service.name,
    )


def _build_shared_alert(id_: str, query: str, minutes: int, *, unit: str = "", per_unit: float = 1) -> Alert:
    """Return an alert that exists on both clouds.

    Args:
        per_unit: Divisor of the table's threshold, since Prometheus uses seconds.
    """
    condition = ALERT_CONDITION_BY_ID[id_]
    return Alert(
        id_,
        condition.meaning,
        query,
        condition.comparison,
        condition.threshold / per_unit,
        minutes,
        affects_callers=condition.affects_callers,
        unit=unit,
    )


def _build_telemetry_silent_alert(meaning: str, query: str, target: str) -> Alert:
    return Alert("telemetry-silent", meaning, query, Comparison.ABOVE, 0, 5, target=target)


def _build_increase_query(metric: str, label: str, *values: str) -> str:
    """Return PromQL for the increase in a metric from our images in five minutes, filtered by the values of a label."""
    return f'increase({METRICS[metric].prometheus_name}{{{label}=~"{"|".join(values)}"}}[{COUNTER_WINDOW_MINUTES}m])'


def _format_label_selector(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def _build_metric_query(metric: ClusterMetric, **labels: str) -> str:
    """Return PromQL for a metric in our namespace."""
    return f"{metric}{_format_label_selector({'namespace': NAMESPACE, **labels})}"


def _build_aggregated_query(label: str, metric: ClusterMetric, **labels: str) -> str:
    """Return PromQL for a metric aggregated to one label.

    After the Prometheus agent is replaced, each series exists a second time, with the new agent's pod.
    """
    return f"max by ({label}) ({metric}{_format_label_selector(labels)})"


def _build_deployments_query(metric: ClusterMetric, names: list[str]) -> str:
    """Return PromQL for the sum of a metric over Deployments, whose names need no escaping."""
    return f'sum({metric}{{namespace="{NAMESPACE}",deployment=~"{"|".join(names)}"}})'


def _build_rate_query(metric: SpeechMetric, **labels: str) -> str:
    return f"sum(rate({metric}{_format_label_selector(labels)}[5m]))"
