"""The router in front of every engine."""

import pulumi
import pulumi_kubernetes as k8s

from voice_blueprint.azure.contract import COMPONENT_LABEL, ENGINE_HTTP, ROUTER_HTTP, SERVICE_LABEL, Component
from voice_blueprint.azure.names import POOL_LABEL, SYSTEM_TAINT, engine_service_name
from voice_blueprint.contract.images import Image
from voice_blueprint.engines.launch.router import HEALTH_PATH
from voice_blueprint.engines.launch.router import Router as RouterLauncher
from voice_blueprint.engines.launch.services import ROUTER_CPUS, router_launch
from voice_blueprint.file.model.azure import SYSTEM_POOL
from voice_constructs.azure.kubernetes.context import TYPE_PREFIX, ClusterContext, metadata, pod_labels
from voice_constructs.azure.kubernetes.engine_replicas import HOST_LABEL
from voice_constructs.azure.kubernetes.namespaces import Claim
from voice_constructs.azure.kubernetes.pods import (
    ENGINE_PRE_STOP_S,
    PRE_STOP_S,
    STOP_MARGIN_S,
    ConfigFiles,
    Container,
    LaunchedContainer,
    Share,
    http_probe,
    pod_security_context,
    tmp_volume,
    tolerations,
)

NAME = Component.ROUTER.value
SHARE = Share(cpus=ROUTER_CPUS, memory_gib=4)
"""Resources of one replica. A request that waits for its response uses up to two buffers of ``BUFFER_MIB``, depending
on its body: 1,500 utterances of 1 MiB use 3 GiB. ASSUMED, not measured."""

SELECTOR = {COMPONENT_LABEL: Component.ROUTER.value}


class Router(pulumi.ComponentResource):
    """Replicas of the router, which share one address in the cluster and have no load balancer.

    The replicas discover pods by DNS, and have no access to the Kubernetes API.

    Attributes:
        address: Address for clients in the cluster.
        claim: Total limits of all replicas.
    """

    def __init__(self, name: str, *, context: ClusterContext, opts: pulumi.ResourceOptions) -> None:
        super().__init__(f"{TYPE_PREFIX}:Router", name, None, opts)
        self._context = context
        self._child = pulumi.ResourceOptions(parent=self)
        self.claim = Claim(context.azure.router.replicas + 1, SHARE.cpus, SHARE.memory_gib)
        self._build_engine_services()
        self._build_deployment()
        service = self._build_service()
        self.address = pulumi.Output.concat(
            "http://", service.metadata.name, ".", context.namespace, f":{ROUTER_HTTP.number}"
        )
        self.register_outputs({})

    def _build_engine_services(self) -> None:
        """Create a headless Service for each service, whose DNS record contains the address of every ready pod."""
        for service in self._context.azure.services:
            name = engine_service_name(service)
            k8s.core.v1.Service(
                name,
                metadata=metadata(name, self._context.namespace, annotations={"pulumi.com/skipAwait": "true"}),
                spec=k8s.core.v1.ServiceSpecArgs(
                    cluster_ip="None",
                    selector={COMPONENT_LABEL: Component.ENGINE.value, SERVICE_LABEL: service.name},
                    ports=[
                        k8s.core.v1.ServicePortArgs(
                            name="http", port=ENGINE_HTTP.number, target_port=ENGINE_HTTP.number, protocol="TCP"
                        )
                    ],
                ),
                opts=self._child,
            )

    def _build_deployment(self) -> None:
        selector = k8s.meta.v1.LabelSelectorArgs(match_labels=SELECTOR)
        launcher = router_launch(self._context.azure)
        files = ConfigFiles.from_launchers(NAME, [launcher])
        config_map = files.config_map(self._context.namespace, self._child)
        account = k8s.core.v1.ServiceAccount(
            NAME,
            metadata=metadata(NAME, self._context.namespace),
            automount_service_account_token=False,
            opts=self._child,
        )
        pod = k8s.core.v1.PodSpecArgs(
            service_account_name=account.metadata.name,
            automount_service_account_token=False,
            enable_service_links=False,
            security_context=pod_security_context(),
            node_selector={POOL_LABEL: SYSTEM_POOL},
            tolerations=tolerations([SYSTEM_TAINT]),
            topology_spread_constraints=[
                k8s.core.v1.TopologySpreadConstraintArgs(
                    max_skew=1, topology_key=HOST_LABEL, when_unsatisfiable="ScheduleAnyway", label_selector=selector
                )
            ],
            # Requests pass through the router, so it drains as long as the slowest service.
            termination_grace_period_seconds=ENGINE_PRE_STOP_S + launcher.drain_s + STOP_MARGIN_S,
            containers=[self._container(launcher, files)],
            volumes=[tmp_volume(), *files.volumes()],
        )
        self._deploy(pod, selector, [config_map] if config_map else [])

    def _container(self, launcher: RouterLauncher, files: ConfigFiles) -> Container:
        return LaunchedContainer(
            name=NAME,
            image=self._context.image_uri(Image.ROUTER),
            launcher=launcher,
            share=SHARE,
            ports={"http": ROUTER_HTTP},
            startup=http_probe(ROUTER_HTTP, HEALTH_PATH, period_s=5, failures=24),
            liveness=http_probe(ROUTER_HTTP, HEALTH_PATH, period_s=10, failures=6),
            readiness=http_probe(ROUTER_HTTP, HEALTH_PATH, period_s=5, failures=2),
            pre_stop_s=PRE_STOP_S,
        ).to_container_args(files)

    def _deploy(
        self, pod: k8s.core.v1.PodSpecArgs, selector: k8s.meta.v1.LabelSelectorArgs, needs: list[k8s.core.v1.ConfigMap]
    ) -> None:
        context = self._context
        k8s.apps.v1.Deployment(
            NAME,
            metadata=metadata(
                NAME,
                context.namespace,
                labels=pod_labels(Component.ROUTER),
                # Without the digest of its image, the Deployment never becomes ready.
                annotations={"pulumi.com/skipAwait": "true"},
            ),
            spec=k8s.apps.v1.DeploymentSpecArgs(
                replicas=context.initial_replicas(context.azure.router.replicas, (Image.ROUTER,)),
                selector=selector,
                strategy=k8s.apps.v1.DeploymentStrategyArgs(
                    type="RollingUpdate",
                    rolling_update=k8s.apps.v1.RollingUpdateDeploymentArgs(max_surge=1, max_unavailable=0),
                ),
                template=k8s.core.v1.PodTemplateSpecArgs(
                    metadata=k8s.meta.v1.ObjectMetaArgs(labels=pod_labels(Component.ROUTER)), spec=pod
                ),
            ),
            opts=pulumi.ResourceOptions(parent=self, depends_on=needs),
        )
        k8s.policy.v1.PodDisruptionBudget(
            NAME,
            metadata=metadata(NAME, context.namespace),
            spec=k8s.policy.v1.PodDisruptionBudgetSpecArgs(
                max_unavailable=1, selector=selector, unhealthy_pod_eviction_policy="AlwaysAllow"
            ),
            opts=self._child,
        )

    def _build_service(self) -> k8s.core.v1.Service:
        return k8s.core.v1.Service(
            NAME,
            metadata=metadata(NAME, self._context.namespace, annotations={"pulumi.com/skipAwait": "true"}),
            spec=k8s.core.v1.ServiceSpecArgs(
                type="ClusterIP",
                selector=SELECTOR,
                ports=[
                    k8s.core.v1.ServicePortArgs(
                        name="http", port=ROUTER_HTTP.number, target_port=ROUTER_HTTP.number, protocol="TCP"
                    )
                ],
            ),
            opts=self._child,
        )
