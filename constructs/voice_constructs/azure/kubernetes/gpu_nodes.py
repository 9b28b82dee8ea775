"""DaemonSets for GPU nodes: the device plugin and the GPU metrics exporter."""

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from voice_blueprint.azure.contract import COMPONENT_LABEL, DCGM, Component
from voice_blueprint.azure.names import GPU_LABEL, Taint, list_pool_taints
from voice_blueprint.contract.images import Image
from voice_blueprint.engines.launch.dcgm import NODE_NAME_VARIABLE
from voice_blueprint.engines.launch.services import create_dcgm_launcher
from voice_constructs.azure.kubernetes.context import (
    COMPONENT_TYPE_PREFIX,
    ClusterContext,
    create_metadata,
    create_pod_labels,
)
from voice_constructs.azure.kubernetes.pods import (
    ConfigFiles,
    Container,
    ContainerResources,
    Mount,
    Volume,
    create_env_vars,
    create_http_probe,
    create_pod_field_source,
    create_tolerations,
)

IMAGE_WITHOUT_DIGEST_LABEL = "voice-serve/image-without-digest"
"""Label that no node has. A DaemonSet that waits for its image selects this label, since a DaemonSet has no replica
count."""

DEVICE_PLUGIN_RESOURCES = ContainerResources(cpus=0.1, memory_gib=0.25)
DCGM_RESOURCES = ContainerResources(cpus=0.25, memory_gib=1)

_DEVICE_PLUGINS_DIR = "/var/lib/kubelet/device-plugins"
_POD_RESOURCES_DIR = "/var/lib/kubelet/pod-resources"


class GpuDaemonSets(pulumi.ComponentResource):
    """The device plugin and the DCGM exporter, on the nodes of every GPU pool.

    The managed GPU pools of AKS include both, but are a preview that does not support the cluster autoscaler.

    Attributes:
        daemon_sets: DaemonSets by component.
    """

    def __init__(self, name: str, *, context: ClusterContext, opts: pulumi.ResourceOptions) -> None:
        super().__init__(f"{COMPONENT_TYPE_PREFIX}:GpuNodes", name, None, opts)
        self._context = context
        self.daemon_sets = {
            Component.DEVICE_PLUGIN: self._build_device_plugin(),
            Component.GPU_METRICS: self._build_exporter(),
        }
        self.register_outputs({})

    def _build_device_plugin(self) -> k8s.apps.v1.DaemonSet:
        """Create the DaemonSet of the device plugin.

        Options: https://github.com/NVIDIA/k8s-device-plugin#configuration-option-details.

        With ``PASS_DEVICE_SPECS``, the kubelet adds the device nodes to each container's specification. systemd applies
        that specification again whenever it reloads its units, and permissions added by a hook alone would be lost
        (https://github.com/NVIDIA/nvidia-container-toolkit/issues/48). The plugin must be privileged.
        """
        container = Container(
            name=Component.DEVICE_PLUGIN.value,
            image=self._context.get_image_uri(Image.DEVICE_PLUGIN),
            env=create_env_vars({"PASS_DEVICE_SPECS": "true", "FAIL_ON_INIT_ERROR": "true", "MIG_STRATEGY": "none"}),
            resources=DEVICE_PLUGIN_RESOURCES.to_requirements(),
            security_context=k8s.core.v1.SecurityContextArgs(privileged=True, read_only_root_filesystem=True),
            volume_mounts=[Mount(name="kubelet", mount_path=_DEVICE_PLUGINS_DIR)],
        )
        return self._build_daemon_set(
            Component.DEVICE_PLUGIN, Image.DEVICE_PLUGIN, container, [_create_kubelet_volume(_DEVICE_PLUGINS_DIR)], []
        )

    def _build_exporter(self) -> k8s.apps.v1.DaemonSet:
        launcher = create_dcgm_launcher()
        files = ConfigFiles.from_launchers(Component.GPU_METRICS.value, [launcher])
        child = pulumi.ResourceOptions(parent=self)
        config_map = files.create_config_map(self._context.gpu_namespace, child)
        container = Container(
            name=Component.GPU_METRICS.value,
            image=self._context.get_image_uri(Image.DCGM_EXPORTER),
            command=list(launcher.build_command()),
            env=create_env_vars(
                launcher.build_environment(), {NODE_NAME_VARIABLE: create_pod_field_source("spec.nodeName")}
            ),
            ports=[k8s.core.v1.ContainerPortArgs(name="metrics", container_port=DCGM.number, protocol="TCP")],
            resources=DCGM_RESOURCES.to_requirements(),
            readiness_probe=create_http_probe(DCGM, "/health", period_s=15, failures=3),
            liveness_probe=create_http_probe(DCGM, "/health", period_s=30, failures=5),
            security_context=k8s.core.v1.SecurityContextArgs(
                allow_privilege_escalation=False,
                run_as_user=0,
                # The GPU's profiling counters require administrator rights.
                capabilities=k8s.core.v1.CapabilitiesArgs(drop=["ALL"], add=["SYS_ADMIN"]),
                seccomp_profile=k8s.core.v1.SeccompProfileArgs(type="RuntimeDefault"),
            ),
            volume_mounts=[
                Mount(name="kubelet", mount_path=_POD_RESOURCES_DIR, read_only=True),
                *files.create_mounts(launcher),
            ],
        )
        volumes = [_create_kubelet_volume(_POD_RESOURCES_DIR), *files.create_volumes()]
        return self._build_daemon_set(
            Component.GPU_METRICS, Image.DCGM_EXPORTER, container, volumes, [config_map] if config_map else []
        )

    def _build_daemon_set(
        self,
        component: Component,
        image: Image,
        container: Container,
        volumes: Sequence[Volume],
        needs: Sequence[pulumi.Resource],
    ) -> k8s.apps.v1.DaemonSet:
        name, namespace, child = component.value, self._context.gpu_namespace, pulumi.ResourceOptions(parent=self)
        account = k8s.core.v1.ServiceAccount(
            name, metadata=create_metadata(name, namespace), automount_service_account_token=False, opts=child
        )
        pod = k8s.core.v1.PodSpecArgs(
            service_account_name=account.metadata.name,
            automount_service_account_token=False,
            enable_service_links=False,
            priority_class_name="system-node-critical",
            affinity=self._build_gpu_node_affinity(),
            node_selector={IMAGE_WITHOUT_DIGEST_LABEL: "true"} if self._context.must_wait_for_image((image,)) else None,
            tolerations=create_tolerations(self._collect_taints()),
            containers=[container],
            volumes=list(volumes),
        )
        labels = create_pod_labels(component)
        return k8s.apps.v1.DaemonSet(
            name,
            metadata=create_metadata(name, namespace, labels=labels, annotations={"pulumi.com/skipAwait": "true"}),
            spec=k8s.apps.v1.DaemonSetSpecArgs(
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels={COMPONENT_LABEL: component.value}),
                update_strategy=k8s.apps.v1.DaemonSetUpdateStrategyArgs(type="RollingUpdate"),
                template=k8s.core.v1.PodTemplateSpecArgs(metadata=k8s.meta.v1.ObjectMetaArgs(labels=labels), spec=pod),
            ),
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(needs)),
        )

    def _collect_taints(self) -> list[Taint]:
        azure = self._context.azure
        return list(dict.fromkeys(taint for pool in azure.pools for taint in list_pool_taints(azure, pool)))

    def _build_gpu_node_affinity(self) -> k8s.core.v1.AffinityArgs:
        desired = k8s.core.v1.NodeSelectorRequirementArgs(key=GPU_LABEL, operator="Exists")
        return k8s.core.v1.AffinityArgs(
            node_affinity=k8s.core.v1.NodeAffinityArgs(
                required_during_scheduling_ignored_during_execution=k8s.core.v1.NodeSelectorArgs(
                    node_selector_terms=[k8s.core.v1.NodeSelectorTermArgs(match_expressions=[desired])]
                )
            )
        )


def _create_kubelet_volume(path: str) -> Volume:
    return Volume(name="kubelet", host_path=k8s.core.v1.HostPathVolumeSourceArgs(path=path, type="Directory"))
