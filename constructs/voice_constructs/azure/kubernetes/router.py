"""The router in front of every engine."""

import pulumi
import pulumi_kubernetes as k8s

from blueprint.azure.contract import COMPONENT_LABEL, ROUTER_HTTP, Component
from blueprint.azure.names import POOL_LABEL, SYSTEM_POOL, SYSTEM_TAINT
from blueprint.contract.images import Image
from blueprint.engines.launch.services import router_launch
from voice_constructs.azure.kubernetes.context import TYPE_PREFIX, ClusterContext, metadata, pod_labels
from voice_constructs.azure.kubernetes.engine_replicas import HOST_LABEL
from voice_constructs.azure.kubernetes.namespaces import Claim
from voice_constructs.azure.kubernetes.pods import (
    PRE_STOP_S,
    STOP_MARGIN_S,
    ConfigFiles,
    Container,
    LaunchedContainer,
    Share,
    http_probe,
    pod_security,
    tmp_volume,
    tolerations,
)

HEALTH_PATH = "/health"
"""Says whether the watch of pods and the reading of their metrics still run (production-stack's ``main_router.py``)."""

NAME = Component.ROUTER.value
SHARE = Share(cpus=2, memory_gib=4)
"""Of one replica: Python that passes on bytes; uploads of audio are held while they pass. ASSUMED, not measured."""

SELECTOR = {COMPONENT_LABEL: Component.ROUTER.value}


class Router(pulumi.ComponentResource):
    """Replicas of the router behind one address inside the cluster; there is no load balancer.

    They watch the engines' pods, so theirs are the only pods here that Kubernetes' API knows: they may read pods of
    their namespace, nothing else.

    Attributes:
        address: Where callers inside the cluster reach it.
        claim: What all replicas take at most.
    """

    def __init__(self, name: str, *, context: ClusterContext, opts: pulumi.ResourceOptions) -> None:
        super().__init__(f"{TYPE_PREFIX}:Router", name, None, opts)
        self._context = context
        self._child = pulumi.ResourceOptions(parent=self)
        self.claim = Claim(context.azure.router.replicas + 1, SHARE.cpus, SHARE.memory_gib)
        account, binding = self._build_account()
        self._build_deployment(account, binding)
        service = self._build_service()
        self.address = pulumi.Output.concat(
            "http://", service.metadata.name, ".", context.namespace, f":{ROUTER_HTTP.number}"
        )
        self.register_outputs({})

    def _build_account(self) -> tuple[k8s.core.v1.ServiceAccount, k8s.rbac.v1.RoleBinding]:
        namespace = self._context.namespace
        account = k8s.core.v1.ServiceAccount(
            NAME, metadata=metadata(NAME, namespace), automount_service_account_token=False, opts=self._child
        )
        role = k8s.rbac.v1.Role(
            NAME,
            metadata=metadata(NAME, namespace),
            rules=[k8s.rbac.v1.PolicyRuleArgs(api_groups=[""], resources=["pods"], verbs=["get", "list", "watch"])],
            opts=self._child,
        )
        binding = k8s.rbac.v1.RoleBinding(
            NAME,
            metadata=metadata(NAME, namespace),
            role_ref=k8s.rbac.v1.RoleRefArgs(
                api_group="rbac.authorization.k8s.io", kind="Role", name=role.metadata.name
            ),
            subjects=[k8s.rbac.v1.SubjectArgs(kind="ServiceAccount", name=account.metadata.name, namespace=namespace)],
            opts=self._child,
        )
        return account, binding

    def _build_deployment(self, account: k8s.core.v1.ServiceAccount, binding: k8s.rbac.v1.RoleBinding) -> None:
        selector = k8s.meta.v1.LabelSelectorArgs(match_labels=SELECTOR)
        drain_s = max(service.drain_timeout_s for service in self._context.azure.services)
        pod = k8s.core.v1.PodSpecArgs(
            service_account_name=account.metadata.name,
            automount_service_account_token=True,
            enable_service_links=False,
            security_context=pod_security(),
            node_selector={POOL_LABEL: SYSTEM_POOL},
            tolerations=tolerations([SYSTEM_TAINT]),
            topology_spread_constraints=[
                k8s.core.v1.TopologySpreadConstraintArgs(
                    max_skew=1, topology_key=HOST_LABEL, when_unsatisfiable="ScheduleAnyway", label_selector=selector
                )
            ],
            # Requests pass through it: as long as the slowest service's.
            termination_grace_period_seconds=PRE_STOP_S + drain_s + STOP_MARGIN_S,
            containers=[self._container()],
            volumes=[tmp_volume()],
        )
        self._deploy(pod, selector, binding)

    def _container(self) -> Container:
        launcher = router_launch(self._context.azure)
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
        ).args(ConfigFiles.of(NAME, [launcher]))

    def _deploy(
        self, pod: k8s.core.v1.PodSpecArgs, selector: k8s.meta.v1.LabelSelectorArgs, binding: k8s.rbac.v1.RoleBinding
    ) -> None:
        context = self._context
        k8s.apps.v1.Deployment(
            NAME,
            metadata=metadata(
                NAME,
                context.namespace,
                labels=pod_labels(Component.ROUTER),
                # Without a digest it never becomes ready.
                annotations={"pulumi.com/skipAwait": "true"},
            ),
            spec=k8s.apps.v1.DeploymentSpecArgs(
                replicas=context.replicas(context.azure.router.replicas, (Image.ROUTER,)),
                selector=selector,
                strategy=k8s.apps.v1.DeploymentStrategyArgs(
                    type="RollingUpdate",
                    rolling_update=k8s.apps.v1.RollingUpdateDeploymentArgs(max_surge=1, max_unavailable=0),
                ),
                template=k8s.core.v1.PodTemplateSpecArgs(
                    metadata=k8s.meta.v1.ObjectMetaArgs(labels=pod_labels(Component.ROUTER)), spec=pod
                ),
            ),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[binding]),
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
