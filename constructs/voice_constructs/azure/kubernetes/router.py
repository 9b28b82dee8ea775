"""The router in front of every engine."""

import pulumi
import pulumi_kubernetes as k8s

from voice_blueprint.azure.contract import COMPONENT_LABEL, ENGINE_HTTP, ROUTER_HTTP, SERVICE_LABEL, Component
from voice_blueprint.azure.names import POOL_LABEL, SYSTEM_TAINT, build_engine_service_name
from voice_blueprint.contract.images import Image
from voice_blueprint.engines.launch.router import HEALTH_PATH
from voice_blueprint.engines.launch.router import Router as RouterLauncher
from voice_blueprint.engines.launch.services import ROUTER_CPUS, create_router_launcher
from voice_blueprint.file.model.azure import SYSTEM_POOL_NAME
from voice_constructs.azure.kubernetes.context import (
    COMPONENT_TYPE_PREFIX,
    ClusterContext,
    create_metadata,
    create_pod_labels,
)
from voice_constructs.azure.kubernetes.engine_replicas import HOST_LABEL
from voice_constructs.azure.kubernetes.namespaces import WorkloadLimits
from voice_constructs.azure.kubernetes.pods import (
    ENGINE_PRE_STOP_S,
    PRE_STOP_S,
    STOP_MARGIN_S,
    ConfigFiles,
    Container,
    ContainerResources,
    ContainerSpec,
    create_http_probe,
    create_pod_security_context,
    create_tmp_volume,
    create_tolerations,
)

ROUTER_NAME = Component.ROUTER.value
ROUTER_RESOURCES = ContainerResources(cpus=ROUTER_CPUS, memory_gib=4)
"""Resources of one replica. A request that waits for its response uses up to two buffers of ``BUFFER_SIZE_MIB``,
depending on its body. For example, 1,500 utterances of 1 MiB use 3 GiB. ASSUMED, not measured."""

ROUTER_SELECTOR = {COMPONENT_LABEL: Component.ROUTER.value}


class Router(pulumi.ComponentResource):
    """Replicas of the router, which share one address in the cluster and have no load balancer.

    The replicas discover pods through DNS, and have no access to the Kubernetes API.

    Attributes:
        address: Address for clients in the cluster.
        resource_limits: Total limits of all replicas.
    """

    def __init__(self, name: str, *, context: ClusterContext, opts: pulumi.ResourceOptions) -> None:
        super().__init__(f"{COMPONENT_TYPE_PREFIX}:Router", name, None, opts)
        self._context = context
        self._child = pulumi.ResourceOptions(parent=self)
        self.resource_limits = WorkloadLimits(
            context.azure.router.replicas + 1, ROUTER_RESOURCES.cpus, ROUTER_RESOURCES.memory_gib
        )
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
            name = build_engine_service_name(service)
            k8s.core.v1.Service(
                name,
                metadata=create_metadata(name, self._context.namespace, annotations={"pulumi.com/skipAwait": "true"}),
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
        selector = k8s.meta.v1.LabelSelectorArgs(match_labels=ROUTER_SELECTOR)
        launcher = create_router_launcher(self._context.azure)
        files = ConfigFiles.from_launchers(ROUTER_NAME, [launcher])
        config_map = files.create_config_map(self._context.namespace, self._child)
        account = k8s.core.v1.ServiceAccount(
            ROUTER_NAME,
            metadata=create_metadata(ROUTER_NAME, self._context.namespace),
            automount_service_account_token=False,
            opts=self._child,
        )
        pod = k8s.core.v1.PodSpecArgs(
            service_account_name=account.metadata.name,
            automount_service_account_token=False,
            enable_service_links=False,
            security_context=create_pod_security_context(),
            node_selector={POOL_LABEL: SYSTEM_POOL_NAME},
            tolerations=create_tolerations([SYSTEM_TAINT]),
            topology_spread_constraints=[
                k8s.core.v1.TopologySpreadConstraintArgs(
                    max_skew=1, topology_key=HOST_LABEL, when_unsatisfiable="ScheduleAnyway", label_selector=selector
                )
            ],
            # Requests pass through the router, so it drains for as long as the slowest service.
            termination_grace_period_seconds=ENGINE_PRE_STOP_S + launcher.drain_s + STOP_MARGIN_S,
            containers=[self._create_router_container(launcher, files)],
            volumes=[create_tmp_volume(), *files.create_volumes()],
        )
        self._build_deployment_and_budget(pod, selector, [config_map] if config_map else [])

    def _create_router_container(self, launcher: RouterLauncher, files: ConfigFiles) -> Container:
        return ContainerSpec(
            name=ROUTER_NAME,
            image=self._context.get_image_uri(Image.ROUTER),
            launcher=launcher,
            resources=ROUTER_RESOURCES,
            ports={"http": ROUTER_HTTP},
            startup=create_http_probe(ROUTER_HTTP, HEALTH_PATH, period_s=5, failures=24),
            liveness=create_http_probe(ROUTER_HTTP, HEALTH_PATH, period_s=10, failures=6),
            readiness=create_http_probe(ROUTER_HTTP, HEALTH_PATH, period_s=5, failures=2),
            pre_stop_s=PRE_STOP_S,
        ).to_container_args(files)

    def _build_deployment_and_budget(
        self, pod: k8s.core.v1.PodSpecArgs, selector: k8s.meta.v1.LabelSelectorArgs, needs: list[k8s.core.v1.ConfigMap]
    ) -> None:
        context = self._context
        k8s.apps.v1.Deployment(
            ROUTER_NAME,
            metadata=create_metadata(
                ROUTER_NAME,
                context.namespace,
                labels=create_pod_labels(Component.ROUTER),
                # Without the digest of its image, the Deployment never becomes ready.
                annotations={"pulumi.com/skipAwait": "true"},
            ),
            spec=k8s.apps.v1.DeploymentSpecArgs(
                replicas=context.calculate_initial_replicas(context.azure.router.replicas, (Image.ROUTER,)),
                selector=selector,
                strategy=k8s.apps.v1.DeploymentStrategyArgs(
                    type="RollingUpdate",
                    rolling_update=k8s.apps.v1.RollingUpdateDeploymentArgs(max_surge=1, max_unavailable=0),
                ),
                template=k8s.core.v1.PodTemplateSpecArgs(
                    metadata=k8s.meta.v1.ObjectMetaArgs(labels=create_pod_labels(Component.ROUTER)), spec=pod
                ),
            ),
            opts=pulumi.ResourceOptions(parent=self, depends_on=needs),
        )
        k8s.policy.v1.PodDisruptionBudget(
            ROUTER_NAME,
            metadata=create_metadata(ROUTER_NAME, context.namespace),
            spec=k8s.policy.v1.PodDisruptionBudgetSpecArgs(
                max_unavailable=1, selector=selector, unhealthy_pod_eviction_policy="AlwaysAllow"
            ),
            opts=self._child,
        )

    def _build_service(self) -> k8s.core.v1.Service:
        return k8s.core.v1.Service(
            ROUTER_NAME,
            metadata=create_metadata(
                ROUTER_NAME, self._context.namespace, annotations={"pulumi.com/skipAwait": "true"}
            ),
            spec=k8s.core.v1.ServiceSpecArgs(
                type="ClusterIP",
                selector=ROUTER_SELECTOR,
                ports=[
                    k8s.core.v1.ServicePortArgs(
                        name="http", port=ROUTER_HTTP.number, target_port=ROUTER_HTTP.number, protocol="TCP"
                    )
                ],
            ),
            opts=self._child,
        )
