"""Drains a node or pod of AKS with kubectl."""

import json
import re
import shlex
from dataclasses import dataclass

from voice_blueprint.azure.contract import NAMESPACE
from voice_blueprint.file.model.azure import Azure

NODE = re.compile(r"aks-[a-z0-9]+-[0-9]+-vmss[0-9a-z]{6}")
"""Pattern of AKS's node names: pool, hash of the cluster, position in the scale set."""
POD = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
MARGIN_S = 120
"""Time beyond a pod's drain timeout: removal of its endpoint, and shutdown of its engine."""


@dataclass(frozen=True)
class KubernetesOrder:
    """Commands to run, in order, with descriptions."""

    host: str
    what: str
    commands: tuple[str, ...]


def order(azure: Azure, host: str) -> KubernetesOrder:
    """Return the commands that drain a node or pod by eviction, which respects disruption budgets and preStop hooks.

    Args:
        azure: The section of the deployment with the cluster.
        host: Name of a node in AKS's format, otherwise of a pod.
    """
    longest_s = max((service.drain_timeout_s for service in azure.services), default=0) + MARGIN_S
    return _node(host, longest_s) if NODE.fullmatch(host) else _pod(host, longest_s)


def _node(name: str, longest_s: int) -> KubernetesOrder:
    commands = (
        f"kubectl cordon {name}",
        f"kubectl drain {name} --ignore-daemonsets --delete-emptydir-data --timeout={longest_s}s",
        f"kubectl get pods --all-namespaces --field-selector spec.nodeName={name}",
    )
    return KubernetesOrder(
        name, "node of the cluster; its pods are evicted when their disruption budgets allow it", commands
    )


def _pod(name: str, longest_s: int) -> KubernetesOrder:
    metadata = {"name": name, "namespace": NAMESPACE}
    eviction = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata})
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction"
    commands = (
        f"echo {shlex.quote(eviction)} | kubectl create --raw {path} -f -",
        f"kubectl wait --namespace {NAMESPACE} --for=delete pod/{name} --timeout={longest_s}s",
    )
    return KubernetesOrder(
        name, f"pod in the namespace {NAMESPACE}; it is evicted when its disruption budget allows it", commands
    )
