"""Telemetry sidecar for tiers that do not publish Prometheus metrics themselves.

It runs the image that publishes metrics on AWS.
"""

from collections.abc import Sequence

from voice_blueprint.azure.contract import Component
from voice_blueprint.contract.environment import HOST
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.network import PROMETHEUS
from voice_constructs.azure.kubernetes.context import ClusterContext
from voice_constructs.azure.kubernetes.pods import ContainerResources, ContainerSpec, Mount, create_pod_field_source
from voice_constructs.azure.kubernetes.programs import create_telemetry_program
from voice_constructs.azure.kubernetes.state_login import StateLogin

SIDECAR_RESOURCES = ContainerResources(cpus=0.1, memory_gib=0.25)
"""Resources of the sidecar, a Python program that reads its source once per second. ASSUMED, not measured."""
METRICS_PORT_NAME = "metrics"
"""Name of the port that a tier's monitor scrapes, in any container."""


def create_telemetry_sidecar(
    context: ClusterContext, tier: Component, source: str, login: StateLogin, mounts: Sequence[Mount] = ()
) -> ContainerSpec:
    """Return the telemetry container of a tier.

    The container stops after the main container, so that metrics cover the whole drain.

    Args:
        source: A source of ``VOICE_TELEMETRY_SOURCES``.
        mounts: Mounts of the source, unless the source is on the loopback interface.
    """
    return ContainerSpec(
        name="telemetry",
        image=context.get_image_uri(Image.TELEMETRY),
        launcher=create_telemetry_program(context.deployment, tier, source),
        resources=SIDECAR_RESOURCES,
        ports={METRICS_PORT_NAME: PROMETHEUS},
        extra_environment=login.build_environment(tier),
        environment_sources={HOST.name: create_pod_field_source("metadata.name")},
        mounts=[*login.create_mounts(), *mounts],
        is_sidecar=True,
    )
