"""The registry of LMCache servers, which replicas use to read each other's KV cache."""

import pulumi
import pulumi_kubernetes as k8s

from voice_blueprint.azure.contract import COMPONENT_LABEL, LMCACHE_COORDINATOR, Component
from voice_blueprint.azure.names import POOL_LABEL, SYSTEM_TAINT
from voice_blueprint.contract.images import Image
from voice_blueprint.engines.launch.services import coordinator_launch
from voice_blueprint.file.model.azure import SYSTEM_POOL
from voice_constructs.azure.kubernetes.context import TYPE_PREFIX, ClusterContext, metadata, pod_labels
from voice_constructs.azure.kubernetes.namespaces import Claim
from voice_constructs.azure.kubernetes.pods import (
    ConfigFiles,
    LaunchedContainer,
    Share,
    http_probe,
    pod_security_context,
    tmp_volume,
    tolerations,
)

NAME = Component.LMCACHE_COORDINATOR.value
SHARE = Share(cpus=0.5, memory_gib=2)
"""Resources of the pod, which imports torch and keeps a record per server. ASSUMED, not measured."""
SELECTOR = {COMPONENT_LABEL: NAME}
HEALTH_PATH = "/instances"
SKIP_AWAIT = {"pulumi.com/skipAwait": "true"}
"""Annotation of objects that Pulumi does not wait for. Without the digest of its image, the pod never becomes ready."""


class LmcacheCoordinator(pulumi.ComponentResource):
    """A single pod, which rebuilds its list of servers from heartbeats.

    Servers that cannot reach the pod work without peers after a while.

    Attributes:
        claim: Total limits of the pod.
    """

    def __init__(self, *, context: ClusterContext, opts: pulumi.ResourceOptions) -> None:
        super().__init__(f"{TYPE_PREFIX}:LmcacheCoordinator", NAME, None, opts)
        self._context = context
        self._child = pulumi.ResourceOptions(parent=self)
        self.claim = Claim(1, SHARE.cpus, SHARE.memory_gib)
        self._build_deployment()
        port = k8s.core.v1.ServicePortArgs(
            name="http", port=LMCACHE_COORDINATOR.number, target_port=LMCACHE_COORDINATOR.number, protocol="TCP"
        )
        k8s.core.v1.Service(
            NAME,
            metadata=metadata(NAME, context.namespace, annotations=SKIP_AWAIT),
            spec=k8s.core.v1.ServiceSpecArgs(type="ClusterIP", selector=SELECTOR, ports=[port]),
            opts=self._child,
        )
        self.register_outputs({})

    def _build_deployment(self) -> None:
        context, labels = self._context, pod_labels(Component.LMCACHE_COORDINATOR)
        k8s.apps.v1.Deployment(
            NAME,
            metadata=metadata(NAME, context.namespace, labels=labels, annotations=SKIP_AWAIT),
            spec=k8s.apps.v1.DeploymentSpecArgs(
                replicas=context.initial_replicas(1, (Image.LMCACHE,)),
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels=SELECTOR),
                # With two pods, each list of servers would be incomplete.
                strategy=k8s.apps.v1.DeploymentStrategyArgs(type="Recreate"),
                template=k8s.core.v1.PodTemplateSpecArgs(
                    metadata=k8s.meta.v1.ObjectMetaArgs(labels=labels), spec=self._pod_spec()
                ),
            ),
            opts=self._child,
        )

    def _pod_spec(self) -> k8s.core.v1.PodSpecArgs:
        account = k8s.core.v1.ServiceAccount(
            NAME,
            metadata=metadata(NAME, self._context.namespace),
            automount_service_account_token=False,
            opts=self._child,
        )
        container = LaunchedContainer(
            name=NAME,
            image=self._context.image_uri(Image.LMCACHE),
            launcher=coordinator_launch(),
            share=SHARE,
            ports={"http": LMCACHE_COORDINATOR},
            startup=http_probe(LMCACHE_COORDINATOR, HEALTH_PATH, period_s=5, failures=24),
            liveness=http_probe(LMCACHE_COORDINATOR, HEALTH_PATH, period_s=10, failures=6),
            readiness=http_probe(LMCACHE_COORDINATOR, HEALTH_PATH, period_s=5, failures=2),
        )
        return k8s.core.v1.PodSpecArgs(
            service_account_name=account.metadata.name,
            automount_service_account_token=False,
            enable_service_links=False,
            security_context=pod_security_context(),
            node_selector={POOL_LABEL: SYSTEM_POOL},
            tolerations=tolerations([SYSTEM_TAINT]),
            containers=[container.to_container_args(ConfigFiles.from_launchers(NAME, ()))],
            volumes=[tmp_volume()],
        )
