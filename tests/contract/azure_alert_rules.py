"""Rules and dashboards emitted for Azure, their metrics, and their evaluation by promtool."""

import json
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from tests.stacks.azure.recorded import inputs
from voice_agent.metrics import Metrics as AgentMetrics
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.metrics import METRICS
from voice_blueprint.engines.launch.dcgm import DCGM_METRIC_LABELS, EXPORTED_FIELDS
from voice_blueprint.engines.published.release import load_published_table
from voice_runtime.metrics import Metrics
from voice_sandbox.azure.graph import Graph

Rule = Mapping[str, Any]
"""A rule in Azure's format."""

_NAME = re.compile(r"[a-zA-Z_][\w:]*")
_NO_METRIC = re.compile(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\b(?:by|on|without|group_left|group_right)\s*\([^)]*\)')
"""Parts of an expression without metric names: matchers, ranges, and lists of labels."""
_WORDS = {"and", "or", "unless", "bool", "offset"}
_HISTOGRAM = ("_bucket", "_count", "_sum")


def rules(graph: Graph) -> list[Rule]:
    """Return every rule of every group."""
    return [
        rule
        for each in graph.find_resources_of_type("alertsmanagement:PrometheusRuleGroup")
        for rule in inputs(each)["rules"]
    ]


def graph_expressions(graph: Graph) -> Iterator[tuple[str, str]]:
    """Yield the expression of every graph of every dashboard, with its title."""
    for each in graph.find_resources_of_type("dashboard:DashboardDefinition"):
        for panel in json.loads(inputs(each)["properties"]["serializedData"])["panels"]:
            yield from ((panel["title"], target["expr"]) for target in panel["targets"])


def metrics(expression: str) -> set[str]:
    """Return the names of metrics in PromQL."""
    bare = _NO_METRIC.sub(" ", expression)
    functions = {match[1] for match in re.finditer(r"(\w+)\s*\(", bare)}
    return set(_NAME.findall(bare)) - functions - _WORDS - {"sum", "max", "min", "count", "avg"}


def published_metrics(recorded: Collection[str]) -> set[str]:
    """Return every metric published in the cluster by engines, caches, exporters and recording rules."""
    kube_state = (Path(__file__).parent / "kube-state-metrics.txt").read_text(encoding="utf-8").splitlines()[1:]
    engines = {
        f"{metric.name}{ending}"
        for engine in ("vllm", "vllm-omni", "lmcache")
        for metric in load_published_table(engine).metrics
        for ending in (_HISTOGRAM if metric.kind == "histogram" else ("",))
    }
    ours = {
        f"{metric.prometheus_name}{ending}"
        for metric in METRICS.values()
        for ending in (_HISTOGRAM if metric.publisher is Image.GATEWAY and metric.unit == "Milliseconds" else ("",))
    }
    agents = {
        f"{family.name}{ending}"
        for family in AgentMetrics(1, Metrics("test", "agent")).registry.collect()
        for ending in (_HISTOGRAM if family.type == "histogram" else ("_total",) if family.type == "counter" else ("",))
    }
    return engines | ours | agents | set(kube_state) | {counter.field for counter in EXPORTED_FIELDS} | set(recorded)


def unpublished_metrics(graph: Graph) -> list[str]:
    """Return metrics of rules and dashboards that are not published."""
    there = published_metrics({rule["record"] for rule in rules(graph) if "record" in rule})
    read = [(rule.get("alert") or rule["record"], rule["expression"]) for rule in rules(graph)]
    return [
        f"{where}: nobody publishes {name}"
        for where, expression in (*read, *graph_expressions(graph))
        for name in sorted(metrics(expression) - there)
    ]


def unpublished_gpu_labels(graph: Graph) -> list[str]:
    """Return labels that rules and dashboards expect of GPU metrics, and that the exporter does not write."""
    fields = {counter.field for counter in EXPORTED_FIELDS}
    read = [(rule.get("alert") or rule["record"], rule["expression"]) for rule in rules(graph)]
    return [
        f"{where}: no GPU metric has the label {label}"
        for where, expression in (*read, *graph_expressions(graph))
        if metrics(expression) & fields
        for label in sorted(_labels(expression) - DCGM_METRIC_LABELS)
    ]


def _labels(expression: str) -> set[str]:
    """Return the labels in the matchers and groupings of PromQL."""
    groupings = re.findall(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)", expression)
    return {label for names in groupings for label in _NAME.findall(names)} | {
        label for matchers in re.findall(r"\{([^}]*)\}", expression) for label in re.findall(r"(\w+)\s*[=!]", matchers)
    }


def promtool(rule_list: list[Rule], tests: list[Mapping[str, Any]]) -> str:
    """Evaluate rules over series with Prometheus; return the differences."""
    written = [
        {key: rule[key] for key in ("alert", "record", "labels", "for") if key in rule} | {"expr": rule["expression"]}
        for rule in rule_list
    ]
    for rule in written:
        if "for" in rule:
            rule["for"] = re.sub(r"PT(\d+)M", r"\1m", rule["for"])
    with TemporaryDirectory() as folder:
        groups = {"groups": [{"name": "all", "interval": "1m", "rules": written}]}
        (Path(folder) / "rules.yaml").write_text(yaml.safe_dump(groups), encoding="utf-8")
        suite = {
            "rule_files": ["rules.yaml"],
            "evaluation_interval": "1m",
            "tests": [{"interval": "1m"} | dict(test) for test in tests],
        }
        (Path(folder) / "tests.yaml").write_text(yaml.safe_dump(suite), encoding="utf-8")
        done = subprocess.run(
            ["/usr/bin/promtool", "test", "rules", "tests.yaml"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    return "" if done.returncode == 0 else done.stdout + done.stderr
