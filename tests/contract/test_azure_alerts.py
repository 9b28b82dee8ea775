"""Alerts on Azure: their metrics are published, Prometheus fires them, and each has a runbook.

Prometheus' own `promtool` evaluates rules and series like the managed Prometheus.
"""

import re
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import yaml

import voice_blueprint
from tests.blueprint.documents import ABSENT
from tests.contract import azure_alert_rules, runbook_rules
from tests.contract.azure_alert_cases import CASES, HEALTHY, Case
from tests.nonempty import nonempty
from tests.stacks.azure.manifests import DIGESTS, manifests, workloads
from tests.stacks.azure.recorded import cluster, edit_deployment, inputs
from tests.synthesized import ROOT
from voice_blueprint.file.model.load import CallLoad
from voice_blueprint.observability.alerting import MIN_REFUSALS
from voice_blueprint.observability.azure.platform import build_platform_alerts
from voice_ops.reference import render_azure_alerts_page
from voice_sandbox.azure.graph import Graph

_PRODUCTION = yaml.safe_load((ROOT / "tests/deployments/production-azure.yaml").read_text(encoding="utf-8"))["azure"]
_CALLERS = {
    "azure.cpu_pool": _PRODUCTION["cpu_pool"],
    "azure.callers": _PRODUCTION["callers"],
    "azure.agents": _PRODUCTION["agents"],
    "load.conversation_share": 0.05,
}
WITH_IMAGES = edit_deployment(
    {
        **_CALLERS,
        "images": DIGESTS,
        "azure.observability": {"email": "a@b.de", "monthly_budget": 900},
    }
)
SCALED_BY_TIER = re.compile("container_cpu|voice_agent|voice_open_sockets|voice_slots_taken")
"""Queries of caller tiers, which have no saturation alert."""
RUNBOOKS = runbook_rules.read(ROOT / "docs/runbooks/azure")


@pytest.fixture(scope="module")
def graph() -> Graph:
    return cluster(WITH_IMAGES)


def test_metrics_of_alerts_and_dashboards_are_published(graph: Graph) -> None:
    assert azure_alert_rules.unpublished_metrics(graph) == []
    assert len(list(azure_alert_rules.graph_expressions(graph))) > 10


def test_gpu_queries_use_labels_of_the_exporter(graph: Graph) -> None:
    """Aggregation by a label that no series has merges all nodes into one series, which does not name a node."""
    assert azure_alert_rules.unpublished_gpu_labels(graph) == []
    gpu_queries = [text for _, text in azure_alert_rules.graph_expressions(graph) if "DCGM" in text]
    assert all("by (hostname, gpu)" in query for query in gpu_queries)
    assert gpu_queries


@pytest.mark.parametrize(
    "name",
    ["kube_node_info", "vllm:num_requests_running", "vllm:time_to_first_token_seconds", "DCGM_FI_DEV_XID_ERRORS",
     "vllm_omni:audio_ttfp_s", "lmcache_mp_l1_usage_ratio", "voice:pod_start_seconds"],
)  # fmt: skip
def test_a_misspelt_metric_is_detected(graph: Graph, name: str) -> None:
    misspelt = f"{name[:-2]}x{name[-2:]}"

    def changed(value: Any) -> Any:  # noqa: ANN401  any value of an input
        match value:
            case dict():
                return {key: value["record"] if key == "record" else changed(each) for key, each in value.items()}
            case list():
                return [changed(each) for each in value]
            case str():
                return value.replace(name, misspelt)
        return value

    resources = tuple(replace(each, inputs=changed(dict(each.inputs))) for each in graph.resources)
    problems = azure_alert_rules.unpublished_metrics(replace(graph, resources=resources))
    assert problems
    assert all(misspelt in problem for problem in problems)


def series(of: dict[str, str | None]) -> list[dict[str, str]]:
    return [
        {"series": name, "values": values if "x" in values else " ".join([values] * 91)}
        for name, values in of.items()
        if values is not None
    ]


def test_no_alert_fires_while_the_deployment_is_healthy(graph: Graph) -> None:
    rules = azure_alert_rules.rules(graph)
    names = [rule["alert"] for rule in rules if "alert" in rule]
    quiet = [{"eval_time": "80m", "alertname": name, "exp_alerts": []} for name in names]
    assert azure_alert_rules.promtool(rules, [{"input_series": series(dict(HEALTHY)), "alert_rule_test": quiet}]) == ""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_fires_at_the_expected_time(graph: Graph, case: Case) -> None:
    found = {rule["alert"]: rule for rule in azure_alert_rules.rules(graph) if "alert" in rule}
    # Prometheus decides the label names, so the test only evaluates the rule's number.
    rule = dict(found[case.alert]) | {"expression": f"count({found[case.alert]['expression']})"}
    test = {
        "input_series": series({**HEALTHY, **case.series}),
        "alert_rule_test": [
            {"eval_time": f"{int(rule['for'][2:-1]) - 1}m", "alertname": case.alert, "exp_alerts": []},
            {"eval_time": f"{case.minutes}m", "alertname": case.alert, "exp_alerts": [{"exp_labels": {}}]},
        ],
    }
    assert azure_alert_rules.promtool([rule], [test]) == ""


def test_every_kind_of_alert_has_a_case(graph: Graph) -> None:
    kinds = {link(rule) for rule in azure_alert_rules.rules(graph) if "alert" in rule}
    fired = {case.alert for case in CASES}
    assert {link(rule) for rule in azure_alert_rules.rules(graph) if rule.get("alert") in fired} == kinds


def link(rule: azure_alert_rules.Rule) -> str:
    found = re.search(r"/azure/([\w-]+)\.md$", rule["annotations"]["runbook"])
    assert found
    return found[1]


def test_every_alert_has_a_runbook_and_every_runbook_an_alert(graph: Graph) -> None:
    linked = {link(rule) for rule in azure_alert_rules.rules(graph) if "alert" in rule}
    for alert in metric_alerts(graph):
        (runbook,) = re.findall(r" Runbook: \S+/azure/([\w-]+)\.md$", alert["description"])
        linked.add(runbook)
    assert linked | {"budget"} == RUNBOOKS.keys()
    for id_, text in RUNBOOKS.items():
        assert tuple(re.findall(r"^## (.+)$", text, re.MULTILINE)) == runbook_rules.SECTIONS, id_
        assert runbook_rules.names_a_time_to_escalate(text), id_


def test_runbooks_name_graphs_that_exist(graph: Graph) -> None:
    titles = {title for title, _ in azure_alert_rules.graph_expressions(graph)}
    topics = {inputs(each)["dashboardName"] for each in graph.find_resources_of_type("dashboard:Dashboard")}
    for id_, text in RUNBOOKS.items():
        assert set(re.findall(r"[Dd]ashboard `(\w+)`", text)) <= topics, id_
        for line in text.splitlines():
            if line.startswith("Dashboard `"):
                for named in re.findall(r'"([A-Z][^"]+)"', line):
                    assert any(title.startswith(named) for title in titles), (id_, named)


def test_the_graph_of_response_times_uses_published_metrics(graph: Graph) -> None:
    """Speech has no first token; an engine that transcribes or answers has no first sound."""
    drawn = [
        expression for title, expression in azure_alert_rules.graph_expressions(graph) if title == "First answer, p95 s"
    ]
    services = yaml.safe_load(WITH_IMAGES)["azure"]["services"]
    assert len(drawn) == len(services)
    for service in services:
        (expression,) = (each for each in drawn if f'"{service["name"]}"' in each)
        assert ("vllm_omni:" in expression) == (service["kind"] == "tts"), expression


def test_the_table_matches_the_deployment(graph: Graph) -> None:
    table = render_azure_alerts_page()
    for rule in nonempty(azure_alert_rules.rules(graph)):
        if "alert" in rule:
            (row,) = (line for line in table.splitlines() if line.startswith(f"| [{rule['alert']}]"))
            _, condition, lasting, noticed, watched = (cell.strip() for cell in re.split(r" \| ", row))
            sign, number = condition.split()[:2]
            expression = f"{watched.strip('`| ')} {'>' if sign == 'above' else '<'} {number}"
            assert expression.replace("\\|", "|") == rule["expression"]
            assert f"PT{lasting.removesuffix(' min')}M" == rule["for"]
            assert rule["severity"] == (1 if noticed == "yes" else 2)


def test_the_threshold_of_an_alert_exceeds_that_of_its_scaling_rule(graph: Graph) -> None:
    emitted = [rule for rule in azure_alert_rules.rules(graph) if rule.get("alert", "").startswith("service-saturated")]
    scaled = manifests(workloads(WITH_IMAGES), "ScaledObject")
    triggers = [trigger["metadata"] for each in scaled for trigger in each["spec"]["triggers"]]
    assert len([each for each in triggers if not SCALED_BY_TIER.search(each["query"])]) == len(emitted)
    for trigger in (each for each in triggers if not SCALED_BY_TIER.search(each["query"])):
        (rule,) = (rule for rule in emitted if trigger["query"].split(" or sum(kube_")[0] in rule["expression"])
        threshold = float(rule["expression"].rpartition(" ")[2])
        assert 1.1 * float(trigger["threshold"]) < threshold < 1.25 * float(trigger["threshold"])


def test_a_deployment_that_had_to_wait_for_its_image_is_scaled_to_its_minimum() -> None:
    """KEDA treats a query without a result as an error, and keeps 0 replicas then."""
    for scaled in nonempty(manifests(workloads(WITH_IMAGES), "ScaledObject")):
        name, spec = scaled["spec"]["scaleTargetRef"]["name"], scaled["spec"]
        if spec["minReplicaCount"] == 0:
            continue
        values = {f'kube_deployment_spec_replicas{{namespace="voice",deployment="{name}"}}': "0x5 2x10"}
        expressions = [trigger["metadata"]["query"] for trigger in spec["triggers"]]
        checks = [
            {"expr": each, "eval_time": minutes, "exp_samples": samples}
            for each in expressions
            for minutes, samples in (("3m", [{"labels": "{}", "value": 0}]), ("10m", []))
        ]
        test = {"input_series": series({**values}), "promql_expr_test": checks}
        assert azure_alert_rules.promtool([], [test]) == "", name


def test_the_agent_keeps_metrics_of_rules_and_dashboards(graph: Graph) -> None:
    (settings,) = (
        each
        for each in manifests(workloads(WITH_IMAGES), "ConfigMap")
        if each["metadata"]["namespace"] == "kube-system"
    )
    read = [rule["expression"] for rule in azure_alert_rules.rules(graph)] + [
        e for _, e in azure_alert_rules.graph_expressions(graph)
    ]
    wanted = {name for each in read for name in azure_alert_rules.metrics(each) if name.startswith("kube_")}
    (kept,) = re.findall(r'kubestate = "(.+)"', settings["data"]["cluster-metrics"])
    assert set(kept.split("|")) == wanted


def test_every_alert_and_the_budget_notify_operators(graph: Graph) -> None:
    (group,) = graph.find_resources_of_type("monitor:ActionGroup")
    group_id = group.id
    assert [each["emailAddress"] for each in inputs(group)["emailReceivers"]] == ["a@b.de"]
    for rule in azure_alert_rules.rules(graph):
        if "alert" in rule:
            assert [action["actionGroupId"] for action in rule["actions"]] == [group_id]
    (budget,) = graph.find_resources_of_type("consumption:Budget")
    assert inputs(budget)["amount"] == 900
    told = inputs(budget)["notifications"].values()
    assert {(each["thresholdType"], each["threshold"]) for each in told} == {("Actual", 80), ("Forecasted", 100)}
    assert all(each["contactGroups"] == [group_id] for each in told)
    # The nodes, which cause most of the cost, are in a resource group that AKS creates.
    (aks,) = graph.find_resources_of_type("containerservice:ManagedCluster")
    groups = inputs(budget)["filter"]["dimensions"]["values"]
    assert inputs(aks)["nodeResourceGroup"] in groups
    assert budget.ignore_changes == ("timePeriod",)
    for alert in metric_alerts(graph):
        assert [action["actionGroupId"] for action in alert["actions"]] == [group_id]


def metric_alerts(graph: Graph) -> list[dict[str, Any]]:
    """Return the inputs of every metric alert of Azure Monitor."""
    return [inputs(each) for each in nonempty(graph.find_resources_of_type("monitor:MetricAlert"))]


def criterion(alert: dict[str, Any]) -> dict[str, Any]:
    (found,) = alert["criteria"]["allOf"]
    return dict(found)


def test_metric_alerts_read_published_metrics_of_the_resource(graph: Graph) -> None:
    """A window is at least the metric's time grain, and only the metric's own dimensions restrict it."""
    lines = (ROOT / "tests/contract/azure-platform-metrics.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    documented = {
        (kind, name): (aggregation, grain, dimensions) for kind, name, aggregation, grain, *dimensions in rows
    }
    for alert in metric_alerts(graph):
        watched, (scope,) = criterion(alert), alert["scopes"]
        assert f"/providers/{watched['metricNamespace']}/" in scope
        aggregation, grain, dimensions = documented[watched["metricNamespace"], watched["metricName"]]
        assert watched["timeAggregation"] == aggregation
        assert {each["name"] for each in watched["dimensions"]} <= set(dimensions)
        shortest, window, every = (
            int(each[2:-1]) for each in (grain, alert["windowSize"], alert["evaluationFrequency"])
        )
        assert shortest <= every <= window


def test_the_table_matches_the_metric_alerts(graph: Graph) -> None:
    table = render_azure_alerts_page()
    for alert in metric_alerts(graph):
        watched = criterion(alert)
        (row,) = (line for line in table.splitlines() if line.startswith(f"| [{watched['name']}]"))
        _, condition, lasting, noticed, source = (cell.strip() for cell in re.split(r" \| ", row))
        assert condition.split()[:2] == ["above", f"{watched['threshold']:g}"]
        assert f"PT{lasting.removesuffix(' min')}M" == alert["windowSize"]
        assert alert["severity"] == (1 if noticed == "yes" else 2)
        assert watched["metricName"] in source


def test_edge_without_images_raises_no_alert_on_its_backends() -> None:
    """Backends without an image have no pod, and stay unhealthy."""
    waiting = cluster(edit_deployment({**_CALLERS, "images": {}}))
    assert "edge-unhealthy" not in {criterion(alert)["name"] for alert in metric_alerts(waiting)}


def test_failed_requests_are_counted_relative_to_the_load() -> None:
    shipped = voice_blueprint.load(ROOT / "deployments/production-azure.yaml")

    def limit(calls: int) -> float:
        load = CallLoad(calls=calls, minutes_each=5, speech_share=0.5, peak_factor=2)
        alerts = build_platform_alerts(shipped.model_copy(update={"load": load}))
        return next(each.threshold for each in alerts if each.id == "edge-errors")

    # 5 % of the calls that begin in five minutes.
    assert limit(6_000) == 600
    assert limit(10) == 5 * MIN_REFUSALS


def test_workloads_without_an_image_raise_no_alert() -> None:
    waiting = azure_alert_rules.rules(cluster(edit_deployment({})))
    assert {link(rule) for rule in waiting if "alert" in rule} == {
        "telemetry-silent", "replicas-at-maximum", "replicas-missing", "engine-restarts", "model-fetch-failed",
        "node-not-ready", "gpu-error",
    }  # fmt: skip


def test_without_a_configured_budget_no_budget_is_created() -> None:
    assert (
        list(cluster(edit_deployment({"azure.observability": ABSENT})).find_resources_of_type("consumption:Budget"))
        == []
    )


def test_rule_groups_do_not_exceed_the_azure_limit(graph: Graph) -> None:
    for each in nonempty(graph.find_resources_of_type("alertsmanagement:PrometheusRuleGroup")):
        assert 0 < len(inputs(each)["rules"]) <= 20


def test_durations_of_start_phases_are_recorded(graph: Graph) -> None:
    recorded = [rule for rule in azure_alert_rules.rules(graph) if "record" in rule]
    started = {
        'kube_pod_created{namespace="voice",pod="p"}': "100",
        'kube_pod_status_scheduled_time{namespace="voice",pod="p"}': "400",
        'kube_pod_container_state_started{namespace="voice",pod="p",container="engine"}': "700",
        'kube_pod_container_state_started{namespace="voice",pod="p",container="lmcache"}': "650",
        'kube_pod_status_ready_time{namespace="voice",pod="p"}': "1300",
    }
    phases = {"node": 300, "pull": 300, "engine": 600}
    samples = [
        {"labels": f'voice:pod_start_seconds{{phase="{phase}",pod="p"}}', "value": seconds}
        for phase, seconds in phases.items()
    ]
    asked = {"expr": "voice:pod_start_seconds", "eval_time": "5m", "exp_samples": samples}
    test = {"input_series": series(dict(started)), "promql_expr_test": [asked]}
    assert azure_alert_rules.promtool(deepcopy(recorded), [test]) == ""
