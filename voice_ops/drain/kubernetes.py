"""Generates the kubectl commands that drain a node or pod of AKS."""

import json
import re
import shlex
from dataclasses import dataclass

from voice_blueprint.azure.contract import NAMESPACE
from voice_blueprint.file.model.azure import Azure

NODE_NAME = re.compile(r"aks-[a-z0-9]+-[0-9]+-vmss[0-9a-z]{6}")
"""Pattern of AKS's node names, which contain the pool, a hash of the cluster, and the position in the scale set."""
POD_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
MARGIN_S = 120
"""Time in addition to a pod's drain timeout, for the removal of the endpoint and the shutdown of the engine."""


@dataclass(frozen=True)
class DrainCommands:
    """Commands that drain a node or pod, in order, and a description of the node or pod."""

    host: str
    what: str
    commands: tuple[str, ...]


def drain_commands(azure: Azure, host: str) -> DrainCommands:
    """Return the commands that drain a node or pod. Evictions respect disruption budgets and preStop hooks.

    Args:
        azure: Azure section of the deployment.
        host: Name of a node in AKS's format, or of a pod.
    """
    longest_s = max((service.drain_timeout_s for service in azure.services), default=0) + MARGIN_S
    return _node_commands(host, longest_s) if NODE_NAME.fullmatch(host) else _pod_commands(host, longest_s)


def _node_commands(name: str, longest_s: int) -> DrainCommands:
    commands = (
        f"kubectl cordon {name}",
        f"kubectl drain {name} --ignore-daemonsets --delete-emptydir-data --timeout={longest_s}s",
        f"kubectl get pods --all-namespaces --field-selector spec.nodeName={name}",
    )
    return DrainCommands(
        name, "node of the cluster; its pods are evicted when their disruption budgets allow it", commands
    )


def _pod_commands(name: str, longest_s: int) -> DrainCommands:
    metadata = {"name": name, "namespace": NAMESPACE}
    eviction = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata})
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction"
    commands = (
        f"echo {shlex.quote(eviction)} | kubectl create --raw {path} -f -",
        f"kubectl wait --namespace {NAMESPACE} --for=delete pod/{name} --timeout={longest_s}s",
    )
    return DrainCommands(
        name, f"pod in the namespace {NAMESPACE}; it is evicted when its disruption budget allows it", commands
    )
