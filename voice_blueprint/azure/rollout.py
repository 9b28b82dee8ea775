"""Rollouts of engines, and upgrades of node pools without GPUs."""

import math

from voice_blueprint.file.model.base import HostCount

START_TIMEOUT_S = 2400
"""Maximum start-up time of an engine, without the download of its weights. 11 min were measured with empty compile
caches (https://github.com/siderolabs/talos, pull request 1848); the first engine also reads its weights over NFS."""


def surge_pods(replicas: HostCount) -> int:
    """Return the number of pods that a rollout adds before it stops one.

    GPUs are scarce, so only a service with a single replica gets a second pod during a rollout; several replicas are
    replaced one after another. A service with a minimum of 0 needs no additional pod.
    """
    return 1 if replicas.min == 1 else 0


SURGE_PERCENT = 33
"""Nodes that AKS adds during an upgrade to a pool without GPUs, in percent of its nodes and rounded up.
https://learn.microsoft.com/azure/aks/upgrade-cluster#customize-node-surge-upgrade"""


def surge_nodes(nodes: int) -> int:
    """Return the number of nodes that an upgrade adds to a pool without GPUs."""
    return math.ceil(nodes * SURGE_PERCENT / 100)
