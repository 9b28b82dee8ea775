"""The data plane on the cluster, which receives RTP from the gateway, and SRTP from callers through a load balancer."""

import pulumi
import pulumi_kubernetes as k8s

from voice_blueprint.azure.contract import VAD_NODE_HEALTH, Component
from voice_blueprint.azure.names import ClusterOutput
from voice_blueprint.capacity.bounds import calculate_vad_pod_call_bounds, find_limiting_bound
from voice_blueprint.contract.environment import HOST, HOST_ADDRESS
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.network import RTP, VAD_HEALTH
from voice_blueprint.contract.session_api import HEALTH_PATH
from voice_blueprint.file.model.azure_callers import VadPods
from voice_blueprint.hosts import IMAGES_BY_CALLER_TIER
from voice_blueprint.observability.azure.scaling import build_slots_trigger
from voice_constructs.azure.kubernetes.context import COMPONENT_TYPE_PREFIX, ClusterContext
from voice_constructs.azure.kubernetes.cpu_replicas import CpuReplicas, CpuReplicasProps
from voice_constructs.azure.kubernetes.load_balancer import LoadBalancer
from voice_constructs.azure.kubernetes.pods import (
    ContainerResources,
    ContainerSpec,
    Mount,
    Probe,
    Volume,
    create_liveness_probe,
    create_pod_field_source,
)
from voice_constructs.azure.kubernetes.programs import VAD_RUN_DIR, create_vad_program
from voice_constructs.azure.kubernetes.scaling import Scaling
from voice_constructs.azure.kubernetes.state_login import StateLogin
from voice_constructs.azure.kubernetes.telemetry import create_telemetry_sidecar

VAD_NAME = Component.VAD.value
RUN_MOUNT = Mount(name="run", mount_path=VAD_RUN_DIR)
"""Mount with the data plane's control socket, which telemetry uses."""


class VadReplicas(pulumi.ComponentResource):
    """Pods of the data plane, which run as an unprivileged user without capabilities, and a UDP load balancer.

    Attributes:
        pods: The pods.
        load_balancer: Load balancer that preserves source addresses. The cluster's program creates its public
            address.
    """

    def __init__(
        self,
        *,
        context: ClusterContext,
        cluster: pulumi.StackReference,
        settings: VadPods,
        login: StateLogin,
        scaling: Scaling,
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__(f"{COMPONENT_TYPE_PREFIX}:Vad", VAD_NAME, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        run = k8s.core.v1.EmptyDirVolumeSourceArgs(medium="Memory", size_limit=f"{8 * settings.cpus}Mi")
        sidecar = create_telemetry_sidecar(context, Component.VAD, "dataplane", login, [RUN_MOUNT])
        self.pods = CpuReplicas(
            context=context,
            scaling=scaling,
            props=CpuReplicasProps(
                component=Component.VAD,
                main_container=_create_dataplane_container(context, settings, login),
                sidecars=[login.create_sidecar(Component.VAD), sidecar],
                replica_bounds=settings.replicas,
                drain_s=settings.drain_timeout_s,
                images=IMAGES_BY_CALLER_TIER[Component.VAD],
                # There is no CPU trigger, since a polling core is always busy.
                triggers=[build_slots_trigger(Component.VAD)],
                volumes=[*login.create_volumes(), Volume(name="run", empty_dir=run)],
            ),
            needs=[login.config],
            opts=child,
        )
        self.load_balancer = LoadBalancer(
            VAD_NAME,
            context=context,
            selector=self.pods.selector,
            ports=[RTP],
            health=VAD_NODE_HEALTH,
            reason="callers send SRTP; packets without a session are dropped",
            annotations={
                "azure-pip-name": cluster.require_output(ClusterOutput.RTP_ADDRESS_NAME),
                "azure-load-balancer-resource-group": cluster.require_output(ClusterOutput.RESOURCE_GROUP),
            },
            # The hash of a flow includes its source port: if a NAT changed a call's port, the call would reach another
            # pod.
            sticky=True,
            opts=child,
        )
        self.register_outputs({})


def _create_dataplane_container(context: ClusterContext, settings: VadPods, login: StateLogin) -> ContainerSpec:
    answers = k8s.core.v1.TCPSocketActionArgs(port=VAD_HEALTH.number)
    return ContainerSpec(
        name=VAD_NAME,
        image=context.get_image_uri(Image.VAD_DATAPLANE),
        launcher=create_vad_program(settings, find_limiting_bound(calculate_vad_pod_call_bounds(settings)).calls),
        resources=ContainerResources(settings.cpus, settings.memory_gib),
        ports={"rtp": RTP, "health": VAD_HEALTH},
        startup=Probe(tcp_socket=answers, period_seconds=2, failure_threshold=60),
        # The port is closed while no packets can flow, and from the start of a drain.
        readiness=Probe(tcp_socket=answers, period_seconds=5, failure_threshold=2),
        # The control thread responds to all requests, and closes the port while a polling core is stuck.
        liveness=create_liveness_probe(VAD_HEALTH, HEALTH_PATH),
        extra_environment=login.build_environment(Component.VAD),
        environment_sources={
            HOST.name: create_pod_field_source("metadata.name"),
            HOST_ADDRESS.name: create_pod_field_source("status.podIP"),
        },
        mounts=[*login.create_mounts(), RUN_MOUNT],
    )
