"""Workloads with GPUs: a Deployment of engine pods with its disruption budget and scaling."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from voice_blueprint.azure.contract import NVME_DIR, SERVICE_LABEL, Component
from voice_blueprint.azure.names import POOL_LABEL, list_pool_taints
from voice_blueprint.azure.rollout import calculate_evictable_pod_count, calculate_surge_pod_count
from voice_blueprint.contract.images import Image
from voice_blueprint.engines.sizing.host import VOLUME_OVERHEAD_FACTOR
from voice_blueprint.file.model.azure import AzureService
from voice_blueprint.file.model.base import HostCount
from voice_blueprint.hosts import list_service_images
from voice_blueprint.observability.azure.scaling import ScalingTrigger
from voice_constructs.azure.kubernetes.context import (
    COMPONENT_TYPE_PREFIX,
    ClusterContext,
    create_metadata,
    create_pod_labels,
)
from voice_constructs.azure.kubernetes.namespaces import WorkloadLimits
from voice_constructs.azure.kubernetes.pods import (
    ENGINE_PRE_STOP_S,
    STOP_MARGIN_S,
    ConfigFiles,
    ContainerSpec,
    Mount,
    Volume,
    create_model_cache_volume,
    create_pod_security_context,
    create_shared_memory_volume,
    create_tmp_volume,
    create_tolerations,
    format_gib_quantity,
)
from voice_constructs.azure.kubernetes.scaling import Scaling
from voice_constructs.azure.kubernetes.storage import LOCAL_NVME_STORAGE_CLASS

HOST_LABEL = "kubernetes.io/hostname"
ZONE_LABEL = "topology.kubernetes.io/zone"


@dataclass(frozen=True)
class EngineReplicasProps:
    """Properties of ``EngineReplicas``.

    Attributes:
        kind: Kind of the component, for Pulumi.
        name: Name of the Deployment.
        check_containers: Init containers that run once, in order.
        sidecars: Containers that start before the engines, in order, and stop after them.
        engines: The other containers.
        shared_memory_gib: Limit of /dev/shm.
        nvme_gib: Size of the volume on the node's local disks; 0 for none.
        uses_whole_node: Whether a pod uses every GPU of its node.
        shares_process_namespace: Whether the containers share a process namespace, as CUDA's memory handles require.
    """

    kind: str
    service: AzureService
    pool: str
    name: str
    engines: Sequence[ContainerSpec]
    triggers: Sequence[ScalingTrigger]
    shared_memory_gib: float
    check_containers: Sequence[ContainerSpec] = ()
    sidecars: Sequence[ContainerSpec] = ()
    nvme_gib: int = 0
    uses_whole_node: bool = False
    shares_process_namespace: bool = False

    @property
    def images(self) -> tuple[Image, ...]:
        """Images of the pod; while one has no digest, there are no replicas."""
        return list_service_images(self.service)

    @property
    def replica_bounds(self) -> HostCount:
        """Minimum and maximum number of replicas."""
        return self.service.get_replica_bounds(self.pool)

    @property
    def surge_pod_count(self) -> int:
        """Number of additional pods during an update."""
        return calculate_surge_pod_count(self.replica_bounds)

    @property
    def resource_limits(self) -> WorkloadLimits:
        """Total limits of all replicas."""
        running = [container.resources for container in (*self.sidecars, *self.engines)]
        return WorkloadLimits(
            pod_count=self.replica_bounds.max + self.surge_pod_count,
            cpus=sum(resources.cpus for resources in running),
            memory_gib=sum(resources.memory_gib for resources in running),
            gpus=sum(resources.gpus for resources in running),
        )


class EngineReplicas(pulumi.ComponentResource):
    """Engine pods on one GPU pool.

    A Deployment, not a StatefulSet, manages the pods, since replicas have no identity: the router finds them by label,
    and their local disks only contain caches.

    Attributes:
        resource_limits: Total limits of all replicas.
    """

    def __init__(
        self,
        *,
        context: ClusterContext,
        scaling: Scaling,
        props: EngineReplicasProps,
        needs: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__(f"{COMPONENT_TYPE_PREFIX}:{props.kind}", props.name, None, opts)
        self._context = context
        self._props = props
        self._child = pulumi.ResourceOptions(parent=self)
        self._labels = create_pod_labels(Component.ENGINE, props.service.name) | {POOL_LABEL: props.pool}
        self._files = ConfigFiles.from_launchers(
            props.name, [container.launcher for container in (*props.check_containers, *props.sidecars, *props.engines)]
        )
        self.resource_limits = props.resource_limits
        config_map = self._files.create_config_map(context.namespace, self._child)
        self.deployment = self._build_deployment([*needs, *([config_map] if config_map else [])])
        self._build_disruption_budget()
        scaling.create_scaled_object(
            self.deployment,
            props.name,
            replica_bounds=props.replica_bounds,
            triggers=props.triggers,
            must_wait_for_image=context.must_wait_for_image(props.images),
            parent=self,
        )
        self.register_outputs({})

    def _build_deployment(self, needs: Sequence[pulumi.Resource]) -> k8s.apps.v1.Deployment:
        props = self._props
        account = k8s.core.v1.ServiceAccount(
            props.name,
            metadata=create_metadata(props.name, self._context.namespace),
            automount_service_account_token=False,
            opts=self._child,
        )
        return k8s.apps.v1.Deployment(
            props.name,
            metadata=create_metadata(
                props.name,
                self._context.namespace,
                labels=self._labels,
                # An engine takes many minutes to become ready and may require a new GPU node, so `pulumi up` does not
                # wait for it.
                annotations={"pulumi.com/skipAwait": "true"},
            ),
            spec=k8s.apps.v1.DeploymentSpecArgs(
                replicas=self._context.calculate_initial_replicas(props.replica_bounds.min, props.images),
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels=self._build_selector()),
                strategy=k8s.apps.v1.DeploymentStrategyArgs(
                    type="RollingUpdate",
                    rolling_update=k8s.apps.v1.RollingUpdateDeploymentArgs(
                        max_surge=props.surge_pod_count, max_unavailable=1 - props.surge_pod_count
                    ),
                ),
                template=k8s.core.v1.PodTemplateSpecArgs(
                    metadata=k8s.meta.v1.ObjectMetaArgs(labels=self._labels, annotations=self._build_annotations()),
                    spec=self._build_pod_spec(account),
                ),
            ),
            # After the first deployment, KEDA sets the number of replicas.
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(needs), ignore_changes=["spec.replicas"]),
        )

    def _build_annotations(self) -> dict[str, str] | None:
        # With a disruption budget of several pods, the autoscaler could stop all replicas that share a node in order to
        # remove the node. Upgrades ignore the annotation.
        return {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"} if self._evictable_pod_count > 1 else None

    @property
    def _evictable_pod_count(self) -> int:
        return calculate_evictable_pod_count(self._props.service, self._context.get_pool(self._props.pool))

    def _build_selector(self) -> dict[str, str]:
        return {SERVICE_LABEL: self._props.service.name, POOL_LABEL: self._props.pool}

    def _build_pod_spec(self, account: k8s.core.v1.ServiceAccount) -> k8s.core.v1.PodSpecArgs:
        props = self._props
        return k8s.core.v1.PodSpecArgs(
            service_account_name=account.metadata.name,
            automount_service_account_token=False,
            enable_service_links=False,
            share_process_namespace=props.shares_process_namespace or None,
            security_context=create_pod_security_context(),
            node_selector={POOL_LABEL: props.pool},
            tolerations=create_tolerations(list_pool_taints(self._context.azure, self._context.get_pool(props.pool))),
            affinity=self._build_anti_affinity() if props.uses_whole_node else None,
            topology_spread_constraints=self._build_topology_spread_constraints(),
            termination_grace_period_seconds=ENGINE_PRE_STOP_S + props.service.drain_timeout_s + STOP_MARGIN_S,
            init_containers=[
                container.to_container_args(self._files) for container in (*props.check_containers, *props.sidecars)
            ]
            or None,
            containers=[container.to_container_args(self._files) for container in props.engines],
            volumes=self._collect_volumes(),
        )

    def _build_anti_affinity(self) -> k8s.core.v1.AffinityArgs:
        """Return the anti-affinity that limits a node to one pod of the service, even if the node has room for two."""
        term = k8s.core.v1.PodAffinityTermArgs(
            label_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=self._build_selector()), topology_key=HOST_LABEL
        )
        anti_affinity = k8s.core.v1.PodAntiAffinityArgs(required_during_scheduling_ignored_during_execution=[term])
        return k8s.core.v1.AffinityArgs(pod_anti_affinity=anti_affinity)

    def _build_topology_spread_constraints(self) -> list[k8s.core.v1.TopologySpreadConstraintArgs]:
        """Return soft constraints that spread replicas. A zone without GPUs must not delay a replica."""
        return [
            k8s.core.v1.TopologySpreadConstraintArgs(
                max_skew=1,
                topology_key=key,
                when_unsatisfiable="ScheduleAnyway",
                label_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=self._build_selector()),
            )
            for key in (ZONE_LABEL, HOST_LABEL)
        ]

    def _collect_volumes(self) -> list[Volume]:
        props = self._props
        volumes = [
            create_tmp_volume(),
            create_model_cache_volume(),
            create_shared_memory_volume(props.shared_memory_gib),
        ]
        volumes += self._files.create_volumes()
        return [*volumes, create_nvme_volume(props.nvme_gib)] if props.nvme_gib else volumes

    def _build_disruption_budget(self) -> None:
        props = self._props
        k8s.policy.v1.PodDisruptionBudget(
            props.name,
            metadata=create_metadata(props.name, self._context.namespace),
            spec=k8s.policy.v1.PodDisruptionBudgetSpecArgs(
                max_unavailable=self._evictable_pod_count,
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels=self._build_selector()),
                # A pod that is not ready serves no callers, and must not prevent a node from being drained.
                unhealthy_pod_eviction_policy="AlwaysAllow",
            ),
            opts=self._child,
        )


def create_nvme_mount() -> Mount:
    """Return the mount for the pod's local disk volume."""
    return Mount(name="nvme", mount_path=NVME_DIR)


def create_nvme_volume(gib: int) -> Volume:
    """Return an ephemeral volume on the node's local disks, which is deleted with its pod."""
    claim = k8s.core.v1.PersistentVolumeClaimSpecArgs(
        access_modes=["ReadWriteOnce"],
        storage_class_name=LOCAL_NVME_STORAGE_CLASS,
        resources=k8s.core.v1.VolumeResourceRequirementsArgs(
            requests={"storage": format_gib_quantity(gib * VOLUME_OVERHEAD_FACTOR)}
        ),
    )
    template = k8s.core.v1.PersistentVolumeClaimTemplateArgs(spec=claim)
    return Volume(name="nvme", ephemeral=k8s.core.v1.EphemeralVolumeSourceArgs(volume_claim_template=template))
