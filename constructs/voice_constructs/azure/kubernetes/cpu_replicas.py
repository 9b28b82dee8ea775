"""Workloads on the CPU pool: a Deployment with its disruption budget and scaling."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from voice_blueprint.azure.contract import COMPONENT_LABEL, Component
from voice_blueprint.azure.names import POOL_LABEL
from voice_blueprint.contract.images import Image
from voice_blueprint.file.model.azure import CPU_POOL_NAME
from voice_blueprint.file.model.base import HostCount
from voice_blueprint.observability.azure.scaling import ScalingTrigger
from voice_constructs.azure.kubernetes.context import (
    COMPONENT_TYPE_PREFIX,
    ClusterContext,
    create_metadata,
    create_pod_labels,
)
from voice_constructs.azure.kubernetes.engine_replicas import HOST_LABEL, ZONE_LABEL
from voice_constructs.azure.kubernetes.namespaces import WorkloadLimits
from voice_constructs.azure.kubernetes.pods import (
    PRE_STOP_S,
    STOP_MARGIN_S,
    ConfigFiles,
    ContainerSpec,
    Volume,
    create_pod_security_context,
    create_tmp_volume,
)
from voice_constructs.azure.kubernetes.scaling import Scaling


@dataclass(frozen=True)
class CpuReplicasProps:
    """Properties of ``CpuReplicas``.

    Attributes:
        component: Kind of pod; the Deployment, its service account and its main container have the same name.
        main_container: The main container.
        sidecars: Containers that start before the main container and stop after it.
        replica_bounds: Minimum and maximum number of pods.
        drain_s: Drain timeout of a pod.
        images: Images of the pod; while one has no digest, there are no pods.
        triggers: Scaling triggers. The trigger that requires the most pods applies; a trigger on slots is first.
    """

    component: Component
    main_container: ContainerSpec
    replica_bounds: HostCount
    drain_s: int
    images: tuple[Image, ...]
    triggers: Sequence[ScalingTrigger]
    sidecars: Sequence[ContainerSpec] = ()
    volumes: Sequence[Volume] = ()


class CpuReplicas(pulumi.ComponentResource):
    """Pods of one component on the CPU pool, spread over zones and nodes.

    Attributes:
        selector: Labels of the pods.
        resource_limits: Total limits of all pods.
    """

    def __init__(
        self,
        *,
        context: ClusterContext,
        scaling: Scaling,
        props: CpuReplicasProps,
        needs: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions,
    ) -> None:
        name = props.component.value
        super().__init__(f"{COMPONENT_TYPE_PREFIX}:CpuReplicas", name, None, opts)
        self._context, self._props, self._name = context, props, name
        self._child = pulumi.ResourceOptions(parent=self)
        self.selector = {COMPONENT_LABEL: name}
        self._label_selector = k8s.meta.v1.LabelSelectorArgs(match_labels=self.selector)
        shares = [container.resources for container in (*props.sidecars, props.main_container)]
        self.resource_limits = WorkloadLimits(
            props.replica_bounds.max + 1, sum(each.cpus for each in shares), sum(each.memory_gib for each in shares)
        )
        deployment = self._build_deployment(needs)
        self._build_disruption_budget()
        scaling.create_scaled_object(
            deployment,
            name,
            replica_bounds=props.replica_bounds,
            triggers=props.triggers,
            must_wait_for_image=context.must_wait_for_image(props.images),
            parent=self,
        )
        self.register_outputs({})

    def _build_deployment(self, needs: Sequence[pulumi.Resource]) -> k8s.apps.v1.Deployment:
        context, props = self._context, self._props
        account = k8s.core.v1.ServiceAccount(
            self._name,
            metadata=create_metadata(self._name, context.namespace),
            automount_service_account_token=False,
            opts=self._child,
        )
        labels = create_pod_labels(props.component)
        return k8s.apps.v1.Deployment(
            self._name,
            metadata=create_metadata(
                self._name,
                context.namespace,
                labels=labels,
                # The Deployment does not become ready without the digest of its image, or without a secret that it
                # waits for.
                annotations={"pulumi.com/skipAwait": "true"},
            ),
            spec=k8s.apps.v1.DeploymentSpecArgs(
                replicas=context.calculate_initial_replicas(props.replica_bounds.min, props.images),
                selector=self._label_selector,
                strategy=k8s.apps.v1.DeploymentStrategyArgs(
                    type="RollingUpdate",
                    rolling_update=k8s.apps.v1.RollingUpdateDeploymentArgs(max_surge=1, max_unavailable=0),
                ),
                template=k8s.core.v1.PodTemplateSpecArgs(
                    metadata=k8s.meta.v1.ObjectMetaArgs(labels=labels), spec=self._build_pod_spec(account)
                ),
            ),
            # After the first deployment, KEDA sets the number of replicas.
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(needs), ignore_changes=["spec.replicas"]),
        )

    def _build_pod_spec(self, account: k8s.core.v1.ServiceAccount) -> k8s.core.v1.PodSpecArgs:
        props, files = self._props, ConfigFiles.from_launchers(self._name, ())
        return k8s.core.v1.PodSpecArgs(
            service_account_name=account.metadata.name,
            automount_service_account_token=False,
            enable_service_links=False,
            security_context=create_pod_security_context(),
            node_selector={POOL_LABEL: CPU_POOL_NAME},
            topology_spread_constraints=[
                k8s.core.v1.TopologySpreadConstraintArgs(
                    max_skew=1,
                    topology_key=key,
                    when_unsatisfiable="ScheduleAnyway",
                    label_selector=self._label_selector,
                )
                for key in (ZONE_LABEL, HOST_LABEL)
            ],
            termination_grace_period_seconds=PRE_STOP_S + props.drain_s + STOP_MARGIN_S,
            init_containers=[container.to_container_args(files) for container in props.sidecars] or None,
            containers=[props.main_container.to_container_args(files)],
            volumes=[create_tmp_volume(), *props.volumes],
        )

    def _build_disruption_budget(self) -> None:
        k8s.policy.v1.PodDisruptionBudget(
            self._name,
            metadata=create_metadata(self._name, self._context.namespace),
            spec=k8s.policy.v1.PodDisruptionBudgetSpecArgs(
                max_unavailable=1, selector=self._label_selector, unhealthy_pod_eviction_policy="AlwaysAllow"
            ),
            opts=self._child,
        )
