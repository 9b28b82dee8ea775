"""The registry of LMCache servers, which replicas use to read each other's KV cache."""

import pulumi
import pulumi_kubernetes as k8s

from voice_blueprint.azure.contract import COMPONENT_LABEL, LMCACHE_COORDINATOR, Component
from voice_blueprint.azure.names import POOL_LABEL, SYSTEM_TAINT
from voice_blueprint.contract.images import Image
from voice_blueprint.engines.launch.services import create_coordinator_launcher
from voice_blueprint.file.model.azure import SYSTEM_POOL_NAME
from voice_constructs.azure.kubernetes.context import (
    COMPONENT_TYPE_PREFIX,
    ClusterContext,
    create_metadata,
    create_pod_labels,
)
from voice_constructs.azure.kubernetes.namespaces import WorkloadLimits
from voice_constructs.azure.kubernetes.pods import (
    ConfigFiles,
    ContainerResources,
    ContainerSpec,
    create_http_probe,
    create_pod_security_context,
    create_tmp_volume,
    create_tolerations,
)

COORDINATOR_NAME = Component.LMCACHE_COORDINATOR.value
COORDINATOR_RESOURCES = ContainerResources(cpus=0.5, memory_gib=2)
"""Resources of the pod, which imports PyTorch and keeps a record per server. ASSUMED, not measured."""
COORDINATOR_SELECTOR = {COMPONENT_LABEL: COORDINATOR_NAME}
HEALTH_PATH = "/instances"
SKIP_AWAIT_ANNOTATIONS = {"pulumi.com/skipAwait": "true"}
"""Annotation of objects that Pulumi does not wait for. Without the digest of its image, the pod never becomes ready."""


class LmcacheCoordinator(pulumi.ComponentResource):
    """A single pod, which rebuilds its list of servers from heartbeats.

    Servers that cannot reach the pod continue without peers after a while.

    Attributes:
        resource_limits: Total limits of the pod.
    """

    def __init__(self, *, context: ClusterContext, opts: pulumi.ResourceOptions) -> None:
        super().__init__(f"{COMPONENT_TYPE_PREFIX}:LmcacheCoordinator", COORDINATOR_NAME, None, opts)
        self._context = context
        self._child = pulumi.ResourceOptions(parent=self)
        self.resource_limits = WorkloadLimits(1, COORDINATOR_RESOURCES.cpus, COORDINATOR_RESOURCES.memory_gib)
        self._build_deployment()
        port = k8s.core.v1.ServicePortArgs(
            name="http", port=LMCACHE_COORDINATOR.number, target_port=LMCACHE_COORDINATOR.number, protocol="TCP"
        )
        k8s.core.v1.Service(
            COORDINATOR_NAME,
            metadata=create_metadata(COORDINATOR_NAME, context.namespace, annotations=SKIP_AWAIT_ANNOTATIONS),
            spec=k8s.core.v1.ServiceSpecArgs(type="ClusterIP", selector=COORDINATOR_SELECTOR, ports=[port]),
            opts=self._child,
        )
        self.register_outputs({})

    def _build_deployment(self) -> None:
        context, labels = self._context, create_pod_labels(Component.LMCACHE_COORDINATOR)
        k8s.apps.v1.Deployment(
            COORDINATOR_NAME,
            metadata=create_metadata(
                COORDINATOR_NAME, context.namespace, labels=labels, annotations=SKIP_AWAIT_ANNOTATIONS
            ),
            spec=k8s.apps.v1.DeploymentSpecArgs(
                replicas=context.calculate_initial_replicas(1, (Image.LMCACHE,)),
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels=COORDINATOR_SELECTOR),
                # If there were two pods, each would have an incomplete list of servers.
                strategy=k8s.apps.v1.DeploymentStrategyArgs(type="Recreate"),
                template=k8s.core.v1.PodTemplateSpecArgs(
                    metadata=k8s.meta.v1.ObjectMetaArgs(labels=labels), spec=self._build_pod_spec()
                ),
            ),
            opts=self._child,
        )

    def _build_pod_spec(self) -> k8s.core.v1.PodSpecArgs:
        account = k8s.core.v1.ServiceAccount(
            COORDINATOR_NAME,
            metadata=create_metadata(COORDINATOR_NAME, self._context.namespace),
            automount_service_account_token=False,
            opts=self._child,
        )
        container = ContainerSpec(
            name=COORDINATOR_NAME,
            image=self._context.get_image_uri(Image.LMCACHE),
            launcher=create_coordinator_launcher(),
            resources=COORDINATOR_RESOURCES,
            ports={"http": LMCACHE_COORDINATOR},
            startup=create_http_probe(LMCACHE_COORDINATOR, HEALTH_PATH, period_s=5, failures=24),
            liveness=create_http_probe(LMCACHE_COORDINATOR, HEALTH_PATH, period_s=10, failures=6),
            readiness=create_http_probe(LMCACHE_COORDINATOR, HEALTH_PATH, period_s=5, failures=2),
        )
        return k8s.core.v1.PodSpecArgs(
            service_account_name=account.metadata.name,
            automount_service_account_token=False,
            enable_service_links=False,
            security_context=create_pod_security_context(),
            node_selector={POOL_LABEL: SYSTEM_POOL_NAME},
            tolerations=create_tolerations([SYSTEM_TAINT]),
            containers=[container.to_container_args(ConfigFiles.from_launchers(COORDINATOR_NAME, ()))],
            volumes=[create_tmp_volume()],
        )
