"""How engines are replaced by newer ones."""

from blueprint.file.model.base import HostCount

START_TIMEOUT_S = 2400
"""Longest start of an engine, without its weights' download. 11 min were measured with empty compile caches
(https://github.com/siderolabs/talos, pull request 1848); the first one reads weights over NFS too."""


def surge_pods(replicas: HostCount) -> int:
    """Return the pods that a rollout adds before it stops one.

    GPUs are scarce, so only a lone replica gets a second one beside it; of several, one after the other is away. Where
    none has to run, nobody misses the one that stops.
    """
    return 1 if replicas.min == 1 else 0
