"""Rules on metrics for scaling, alerts and dashboards, which must be published and scraped."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from voice_blueprint.azure.contract import COMPONENT_LABEL, ENGINE_HTTP, NAMESPACE, SERVICE_LABEL, Component
from voice_blueprint.azure.metrics import (
    POOL_METRIC_LABEL,
    ROLE_METRIC_LABEL,
    SERVICE_METRIC_LABEL,
    CellRole,
    ClusterMetric,
    EngineMetric,
    SpeechMetric,
)
from voice_blueprint.azure.names import POOL_LABEL, build_engine_workload_name, list_service_pool_names
from voice_blueprint.contract.metrics import FLEET_DIMENSION
from voice_blueprint.file.model.azure import AggregatedService, Azure, AzureService, PrefillDecodeCell, TtsService
from voice_blueprint.hosts import IMAGES_BY_CALLER_TIER
from voice_stacks.azure.policy.pods import PodTemplate, list_pods
from voice_stacks.azure.policy.promql import Expression, PromqlError, Selector, find_selectors, parse_expression
from voice_stacks.azure.policy.rules import Resource, Stack, Violation, stack_rule
from voice_stacks.azure.policy.series import build_engine_series, collect_known_series
from voice_stacks.azure.policy.values import Value

AGENT_SETTINGS_CONFIG_MAP = "ama-metrics-settings-configmap"
REQUEST_METRIC_BY_STAGE_METRIC: Mapping[str, str] = {
    EngineMetric.RUNNING: SpeechMetric.RUNNING,
    EngineMetric.WAITING: SpeechMetric.WAITING,
}
"""Metrics for vLLM-Omni's stages, and the corresponding metrics for whole requests."""
KEEP_LIST_PATTERN = re.compile(r'kubestate = "([^"]*)"')
WINDOW_PATTERN = re.compile(r"\[(\d+[smh])\]")
MIN_WINDOW_S = 120
"""Minimum window for rates on dashboards."""
META_LABEL_PREFIX = "__meta_kubernetes_pod_label_"
KEEP_LIST_DOCS_URL = (
    "https://learn.microsoft.com/azure/azure-monitor/containers/prometheus-metrics-scrape-configuration"
)


@dataclass(frozen=True)
class Query:
    """A PromQL query in a resource.

    Attributes:
        location: Location of the query, for messages.
    """

    resource: Resource
    location: str
    text: str


def find_queries(stack: Stack) -> Iterator[Query]:
    """Yield all queries in a stack: those for scaling, alerts, recording rules, and dashboards."""
    for scaled in stack.find_resources(":ScaledObject"):
        for trigger in scaled.props.get("spec", "triggers"):
            if trigger["type"].text == "prometheus":
                label = f"trigger {trigger['name'].text} of {scaled.name}"
                yield Query(scaled, label, trigger.get("metadata", "query").text)
    for group in stack.find_resources(":PrometheusRuleGroup"):
        for each in group.props["rules"]:
            yield Query(group, f"rule {each['alert'].text or each['record'].text}", each["expression"].text)
    for board in stack.find_resources(":DashboardDefinition"):
        text = board.props.get("properties", "serializedData").text
        for panel in Value(json.loads(text))["panels"] if text else ():
            for target in panel["targets"]:
                yield Query(board, f"{board.name}, {panel['title'].text}", target["expr"].text)


def parse_queries(stack: Stack) -> Iterator[tuple[Query, Expression | str]]:
    """Yield each query with its syntax tree, or with its syntax error."""
    for query in find_queries(stack):
        try:
            yield query, parse_expression(query.text)
        except PromqlError as error:
            yield query, str(error)


@stack_rule(
    "queries-read-published-metrics",
    "Metrics and labels in queries of scaling, alerts and dashboards must be published by what is deployed.",
    remedy="use a name of blueprint.azure.metrics, and labels of deployed services, pools and tiers",
    source="voice_blueprint: engines/published/tables, contract/metrics.py, azure/metrics.py",
)
def check_queries_read_published_metrics(stack: Stack) -> Iterator[Violation]:
    azure = stack.azure
    recorded = {
        each["record"].text for group in stack.find_resources(":PrometheusRuleGroup") for each in group.props["rules"]
    }
    for query, tree in parse_queries(stack):
        if isinstance(tree, str):
            yield Violation(query.resource.urn, f"{query.location}: {tree}")
            continue
        for selector in find_selectors(tree):
            if selector.name not in collect_known_series() and selector.name not in recorded:
                yield Violation(query.resource.urn, f"{query.location}: no component publishes {selector.name}")
            elif azure:
                for problem in _find_selector_problems(azure, selector):
                    yield Violation(query.resource.urn, f"{query.location}: {problem}")


def _find_selector_problems(azure: Azure, selector: Selector) -> Iterator[str]:
    services = {service.name: service for service in azure.services}
    label_values = _collect_label_values(azure)
    for matcher in selector.matchers:
        for value in matcher.selected_values:
            if matcher.label in label_values and value not in label_values[matcher.label]:
                yield f'no deployed component has {matcher.label}="{value}"'
            elif matcher.label == SERVICE_METRIC_LABEL and selector.name not in _collect_published_series(
                services[value]
            ):
                yield f"{value} does not publish {selector.name}"
            elif (
                matcher.label == SERVICE_METRIC_LABEL
                and selector.name in REQUEST_METRIC_BY_STAGE_METRIC
                and isinstance(services[value], TtsService)
            ):
                yield (
                    f"{selector.name} of {value} counts a request in each stage; "
                    f"{REQUEST_METRIC_BY_STAGE_METRIC[selector.name]} "
                    "does not"
                )


def _collect_label_values(azure: Azure) -> Mapping[str, set[str]]:
    """Return the label values of the deployed components."""
    tiers = {tier.value for tier in IMAGES_BY_CALLER_TIER} if azure.callers else set()
    tiers |= {Component.AGENT.value} if azure.agents else set()
    replicas = {
        build_engine_workload_name(service, pool.name)
        for service in azure.services
        for pool in azure.pools
        if pool.name in list_service_pool_names(service)
    }
    return {
        SERVICE_METRIC_LABEL: {service.name for service in azure.services},
        POOL_METRIC_LABEL: {pool.name for pool in azure.pools},
        ROLE_METRIC_LABEL: {role.value for role in CellRole},
        FLEET_DIMENSION: tiers,
        "namespace": {NAMESPACE},
        "deployment": replicas | tiers | {Component.ROUTER.value},
    }


def _collect_published_series(service: AzureService) -> set[str]:
    if isinstance(service, TtsService):
        return set(build_engine_series("vllm-omni"))
    cached = isinstance(service, PrefillDecodeCell) or (isinstance(service, AggregatedService) and service.lmcache)
    return set(build_engine_series("vllm")) | (set(build_engine_series("lmcache")) if cached else set())


@stack_rule(
    "scaling-reads-its-target",
    "Queries of a ScaledObject must read the pods that it scales, and their results must grow with load.",
    remedy="select the service, pool or tier of the workload under scaleTargetRef",
    source="https://keda.sh/docs/latest/scalers/prometheus",
)
def check_scaling_reads_its_target(stack: Stack) -> Iterator[Violation]:
    by_name = {(pod.namespace, pod.name): pod for pod in list_pods(stack)}
    for query, tree in parse_queries(stack):
        spec, namespace = query.resource.props["spec"], query.resource.props.get("metadata", "namespace").text
        target = by_name.get((namespace, spec.get("scaleTargetRef", "name").text))
        if isinstance(tree, str) or target is None:
            continue
        for selector in find_selectors(tree):
            for problem in _find_missing_labels(selector, target):
                yield Violation(query.resource.urn, f"{query.location} scales {target.name} and reads {problem}")


def _find_missing_labels(selector: Selector, target: PodTemplate) -> Iterator[str]:
    """Yield the parts of a selector that do not match the target's pods."""
    pod_ports = {
        SERVICE_METRIC_LABEL: target.labels.get(SERVICE_LABEL, ""),
        POOL_METRIC_LABEL: target.labels.get(POOL_LABEL, ""),
        FLEET_DIMENSION: target.labels.get(COMPONENT_LABEL, ""),
        "namespace": target.namespace,
    }
    containers = {container.name for container in target.containers}
    for matcher in selector.matchers:
        if (
            matcher.selected_values
            and matcher.label in pod_ports
            and pod_ports[matcher.label] not in matcher.selected_values
        ):
            yield f'{selector.name} of {matcher.label}="{matcher.value}"'
        if matcher.selected_values and matcher.label == "container" and not containers & set(matcher.selected_values):
            yield f'{selector.name} of container "{matcher.value}"'
        if matcher.label == "pod" and matcher.operator == "=~" and not re.fullmatch(matcher.value, f"{target.name}-a"):
            yield f'{selector.name} of pods "{matcher.value}"'
    if selector.name in build_engine_series("vllm") and SERVICE_METRIC_LABEL not in {
        each.label for each in selector.matchers
    }:
        yield f"{selector.name} of every service"


@stack_rule(
    "monitors-scrape-pods",
    "Every metrics port of the contract must be scraped, with the labels that queries select by.",
    remedy="add a PodMonitor that selects the pods and names their port",
    source="https://learn.microsoft.com/azure/azure-monitor/containers/prometheus-metrics-scrape-crd",
)
def check_monitors_scrape_pods(stack: Stack) -> Iterator[Violation]:
    windows = [_parse_duration_s(text) for query in find_queries(stack) for text in WINDOW_PATTERN.findall(query.text)]
    shortest = min(windows, default=MIN_WINDOW_S)
    for monitor in stack.find_resources(":PodMonitor"):
        if not _list_monitored_pods(monitor, stack):
            yield Violation(monitor.urn, f"monitor {monitor.name} selects no pods")
        for endpoint in monitor.props.get("spec", "podMetricsEndpoints"):
            every = _parse_duration_s(endpoint["interval"].text or "60s")
            if 2 * every > shortest:
                yield Violation(
                    monitor.urn,
                    f"monitor {monitor.name} scrapes every {every} s; the shortest rate window is {shortest} s",
                )
    for pod in list_pods(stack):
        yield from _find_scrape_violations(stack, pod)


def _find_scrape_violations(stack: Stack, pod: PodTemplate) -> Iterator[Violation]:
    """Yield a violation for each metrics port that no monitor scrapes, and for each label that a monitor omits."""
    component = pod.labels.get(COMPONENT_LABEL)
    flows = [flow for flow in stack.flows if flow.source is Component.MONITORING]
    desired = {flow.port.number for flow in flows if flow.destination.value == component}
    ports = [port for container in pod.running_containers for port in container.spec["ports"]]
    if desired and not desired & {port["containerPort"].number for port in ports}:
        yield Violation(pod.urn, f"{pod.name} has none of the ports {sorted(desired)}: its metrics are not published")
    pod_monitors = [
        monitor for monitor in stack.find_resources(":PodMonitor") if pod in _list_monitored_pods(monitor, stack)
    ]
    for port in ports:
        name = port["name"].text
        matches = [
            (m, e) for m in pod_monitors for e in m.props.get("spec", "podMetricsEndpoints") if e["port"].text == name
        ]
        if port["containerPort"].number in desired and not matches and not _is_redundant_port(pod, port):
            yield Violation(pod.urn, f"no monitor scrapes port {name} of {pod.name}")
        for monitor, endpoint in matches:
            for label in _find_missing_service_labels(pod, endpoint):
                yield Violation(
                    monitor.urn, f"monitor {monitor.name} does not add the label {label} to series of {pod.name}"
                )


def _parse_duration_s(text: str) -> int:
    match = re.fullmatch(r"(\d+)([smh])", text)
    return int(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]] if match else 0


def _list_monitored_pods(monitor: Resource, stack: Stack) -> list[PodTemplate]:
    labels = monitor.props.get("spec", "selector", "matchLabels").as_text_dict()
    namespace = monitor.props.get("metadata", "namespace").text
    return [pod for pod in list_pods(stack) if pod.namespace == namespace and labels.items() <= pod.labels.items()]


def _is_redundant_port(pod: PodTemplate, port: Value) -> bool:
    """Return True if a port only repeats the metrics of another one, as a cell's front does for its decode engine."""
    names = {each["name"].text for container in pod.running_containers for each in container.spec["ports"]}
    return port["containerPort"].number == ENGINE_HTTP.number and CellRole.DECODE.value in names


def _find_missing_service_labels(pod: PodTemplate, endpoint: Value) -> Iterator[str]:
    """Yield the labels on a service's series that an endpoint does not add."""
    if SERVICE_LABEL not in pod.labels:
        return
    target_labels = {
        each["targetLabel"].text: [s.text for s in each["sourceLabels"]] for each in endpoint["relabelings"]
    }
    for label, series in ((SERVICE_LABEL, SERVICE_METRIC_LABEL), (POOL_LABEL, POOL_METRIC_LABEL)):
        if META_LABEL_PREFIX + re.sub(r"\W", "_", label) not in target_labels.get(series, []):
            yield series


@stack_rule(
    "cluster-metrics-are-kept",
    "The Prometheus agent's keep-list must contain all kube-state-metrics that alerts and dashboards read.",
    remedy="render the keep-list from voice_blueprint.azure.metrics.ClusterMetric",
    source=KEEP_LIST_DOCS_URL,
)
def check_cluster_metrics_are_kept(stack: Stack) -> Iterator[Violation]:
    settings = [
        r
        for r in stack.find_resources(":ConfigMap")
        if r.props.get("metadata", "name").text == AGENT_SETTINGS_CONFIG_MAP
    ]
    for monitor in list(stack.find_resources(":PodMonitor"))[:1]:
        if not settings:
            yield Violation(
                monitor.urn, f"{AGENT_SETTINGS_CONFIG_MAP} is missing: the agent drops {', '.join(ClusterMetric)}"
            )
    for resource in settings:
        keep_list = KEEP_LIST_PATTERN.search(resource.props.get("data", "cluster-metrics").text)
        missing = sorted(set(ClusterMetric) - set(keep_list[1].split("|") if keep_list else ()))
        if missing:
            yield Violation(resource.urn, f"the agent drops {', '.join(missing)}")
