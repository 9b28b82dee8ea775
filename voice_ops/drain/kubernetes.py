"""Generates the kubectl commands that drain a node or pod in AKS."""

import json
import re
import shlex
from dataclasses import dataclass

from voice_blueprint.azure.contract import NAMESPACE
from voice_blueprint.file.model.azure import Azure

NODE_NAME_PATTERN = re.compile(r"aks-[a-z0-9]+-[0-9]+-vmss[0-9a-z]{6}")
"""Pattern of AKS's node names, which contain the pool, a hash of the cluster, and the position in the scale set."""
POD_NAME_PATTERN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
POD_DRAIN_MARGIN_S = 120
"""Time in addition to a pod's drain timeout, for the removal of the endpoint and the shutdown of the engine."""


@dataclass(frozen=True)
class DrainPlan:
    """Commands that drain a node or pod, in order, and a description of the node or pod."""

    host: str
    description: str
    commands: tuple[str, ...]


def build_drain_plan(azure: Azure, host: str) -> DrainPlan:
    """Return the commands that drain a node or pod. Evictions respect disruption budgets and preStop hooks.

    Args:
        azure: Azure section of the deployment.
        host: Name of a node in AKS's format, or of a pod.
    """
    longest_s = max((service.drain_timeout_s for service in azure.services), default=0) + POD_DRAIN_MARGIN_S
    return (
        _build_node_drain_plan(host, longest_s)
        if NODE_NAME_PATTERN.fullmatch(host)
        else _build_pod_drain_plan(host, longest_s)
    )


def _build_node_drain_plan(name: str, longest_s: int) -> DrainPlan:
    commands = (
        f"kubectl cordon {name}",
        f"kubectl drain {name} --ignore-daemonsets --delete-emptydir-data --timeout={longest_s}s",
        f"kubectl get pods --all-namespaces --field-selector spec.nodeName={name}",
    )
    return DrainPlan(name, "node of the cluster; its pods are evicted when their disruption budgets allow it", commands)


def _build_pod_drain_plan(name: str, longest_s: int) -> DrainPlan:
    metadata = {"name": name, "namespace": NAMESPACE}
    eviction = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata})
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction"
    commands = (
        f"echo {shlex.quote(eviction)} | kubectl create --raw {path} -f -",
        f"kubectl wait --namespace {NAMESPACE} --for=delete pod/{name} --timeout={longest_s}s",
    )
    return DrainPlan(
        name, f"pod in the namespace {NAMESPACE}; it is evicted when its disruption budget allows it", commands
    )
