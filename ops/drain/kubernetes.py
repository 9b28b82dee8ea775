"""A node or pod of AKS: Kubernetes drains it, and this says how."""

import json
import re
import shlex
from dataclasses import dataclass

from blueprint.azure.contract import NAMESPACE
from blueprint.file.model.azure import Azure

NODE = re.compile(r"aks-[a-z0-9]+-[0-9]+-vmss[0-9a-z]{6}")
"""Name that AKS gives a node: pool, hash of the cluster, place in the scale set."""
POD = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
MARGIN_S = 120
"""What a pod may take beyond its drain timeout: the wait for its endpoint to go, and its engine's end."""


@dataclass(frozen=True)
class KubernetesOrder:
    """What to run, in this order, and what it does."""

    host: str
    what: str
    commands: tuple[str, ...]


def order(azure: Azure, host: str) -> KubernetesOrder:
    """Return how Kubernetes drains a node or pod: by eviction, which respects disruption budgets and preStop hooks.

    Args:
        azure: The half of the deployment that has the cluster.
        host: Name of a node as AKS gives it, else of a pod.
    """
    longest_s = max((service.drain_timeout_s for service in azure.services), default=0) + MARGIN_S
    return _node(host, longest_s) if NODE.fullmatch(host) else _pod(host, longest_s)


def _node(name: str, longest_s: int) -> KubernetesOrder:
    commands = (
        f"kubectl cordon {name}",
        f"kubectl drain {name} --ignore-daemonsets --delete-emptydir-data --timeout={longest_s}s",
        f"kubectl get pods --all-namespaces --field-selector spec.nodeName={name}",
    )
    return KubernetesOrder(name, "node of the cluster; its pods go when their disruption budgets let them", commands)


def _pod(name: str, longest_s: int) -> KubernetesOrder:
    metadata = {"name": name, "namespace": NAMESPACE}
    eviction = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata})
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction"
    commands = (
        f"echo {shlex.quote(eviction)} | kubectl create --raw {path} -f -",
        f"kubectl wait --namespace {NAMESPACE} --for=delete pod/{name} --timeout={longest_s}s",
    )
    return KubernetesOrder(name, f"pod in the namespace {NAMESPACE}; it goes when its budget lets it", commands)
