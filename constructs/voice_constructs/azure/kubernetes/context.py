"""The deployment and the cluster that all workloads share."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from voice_blueprint import catalog
from voice_blueprint.azure.contract import COMPONENT_LABEL, SERVICE_LABEL, Component
from voice_blueprint.catalog import VmSize
from voice_blueprint.contract.images import Image
from voice_blueprint.file.model.azure import Azure, GpuPool
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.hosts import get_image_digest, lacks_digests

COMPONENT_TYPE_PREFIX = "voice:kubernetes"
"""Prefix of the type of every component in this package."""

PART_OF_LABEL = {"app.kubernetes.io/part-of": "voice-serve"}
"""Label on every object in this package."""


@dataclass(frozen=True)
class ClusterContext:
    """A deployment and the cluster that it runs on.

    Attributes:
        registry: Login server of the cluster's registry.
        namespace: Name of the services' namespace, once it exists.
        gpu_namespace: Name of the GPU DaemonSets' namespace, once it exists.
    """

    deployment: Deployment
    registry: pulumi.Output[str]
    namespace: pulumi.Output[str]
    gpu_namespace: pulumi.Output[str]

    @property
    def azure(self) -> Azure:
        return self.deployment.azure

    def get_pool(self, name: str) -> GpuPool:
        return next(pool for pool in self.azure.pools if pool.name == name)

    def get_vm_size(self, pool: str) -> VmSize:
        """Return the VM size of a pool's nodes."""
        return catalog.vm_sizes()[self.get_pool(pool).vm_size]

    def get_image_uri(self, image: Image) -> pulumi.Output[str]:
        """Return the URI of an image with its digest. The URI cannot be pulled if the image has no digest."""
        return pulumi.Output.concat(self.registry, f"/{image.value}@{get_image_digest(self.deployment, image)}")

    def must_wait_for_image(self, images: Iterable[Image]) -> bool:
        """Return True if a workload must wait, because one of its images has no digest and cannot be pulled."""
        return lacks_digests(self.deployment, tuple(images))

    def calculate_initial_replicas(self, configured: int, images: Iterable[Image]) -> int:
        """Return the initial number of replicas, which is 0 for a workload that must wait."""
        return 0 if self.must_wait_for_image(images) else configured


def create_pod_labels(component: Component, service: str | None = None) -> dict[str, str]:
    """Return the labels by which network policies, monitors and the router select a pod."""
    return {COMPONENT_LABEL: component.value, **PART_OF_LABEL, **({SERVICE_LABEL: service} if service else {})}


def create_metadata(
    name: str,
    namespace: pulumi.Input[str] | None,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, pulumi.Input[str]] | None = None,
) -> k8s.meta.v1.ObjectMetaArgs:
    """Return the metadata of an object. The namespace of a cluster-scoped object is ``None``."""
    return k8s.meta.v1.ObjectMetaArgs(
        name=name,
        namespace=namespace,
        labels=dict(labels or PART_OF_LABEL),
        annotations=dict(annotations) if annotations else None,
    )
