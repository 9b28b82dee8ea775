"""What shows Prometheus a tier whose program speaks another language: the image that publishes metrics on AWS."""

from collections.abc import Sequence

from blueprint.azure.contract import Component
from blueprint.contract.environment import HOST
from blueprint.contract.images import Image
from blueprint.contract.network import PROMETHEUS
from blueprint.engines.launch.callers import telemetry
from voice_constructs.azure.kubernetes.context import ClusterContext
from voice_constructs.azure.kubernetes.pods import LaunchedContainer, Mount, Share, of_pod
from voice_constructs.azure.kubernetes.state_login import StateLogin

SHARE = Share(cpus=0.1, memory_gib=0.25)
"""Of the sidecar: Python that reads once a second. ASSUMED, not measured."""
METRICS_PORT = "metrics"
"""Name of the port that a tier's monitor asks, whichever container has it."""


def telemetry_sidecar(
    context: ClusterContext, tier: Component, source: str, login: StateLogin, mounts: Sequence[Mount] = ()
) -> LaunchedContainer:
    """Return the container; it ends after the main one, so that a drain is seen to its end.

    Args:
        source: Of ``VOICE_TELEMETRY_SOURCES``.
        mounts: Where the source is, unless it is on the loopback.
    """
    return LaunchedContainer(
        name="telemetry",
        image=context.image_uri(Image.TELEMETRY),
        launcher=telemetry(context.deployment, tier, source),
        share=SHARE,
        ports={METRICS_PORT: PROMETHEUS},
        extra_environment=login.environment(tier),
        sources={HOST.name: of_pod("metadata.name")},
        mounts=[*login.mounts(), *mounts],
        sidecar=True,
    )
