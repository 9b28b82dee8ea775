"""The data plane on the cluster: RTP of the gateway, and SRTP of callers through a load balancer."""

import pulumi
import pulumi_kubernetes as k8s

from blueprint.azure.contract import VAD_NODE_HEALTH, Component
from blueprint.azure.names import ClusterOutput
from blueprint.capacity import least, vad_pod
from blueprint.contract.environment import HOST, HOST_ADDRESS
from blueprint.contract.images import Image
from blueprint.contract.network import RTP, VAD_HEALTH
from blueprint.engines.launch.callers import VAD_RUN_DIR, vad
from blueprint.file.model.azure_callers import VadPods
from blueprint.hosts import CALLER_TIER_IMAGES
from blueprint.observability.azure_scaling import places_trigger
from voice_constructs.azure.kubernetes.context import TYPE_PREFIX, ClusterContext
from voice_constructs.azure.kubernetes.cpu_replicas import CpuReplicas, CpuReplicasProps
from voice_constructs.azure.kubernetes.load_balancer import LoadBalancer
from voice_constructs.azure.kubernetes.pods import LaunchedContainer, Mount, Probe, Share, Volume, of_pod
from voice_constructs.azure.kubernetes.scaling import Scaling
from voice_constructs.azure.kubernetes.state_login import StateLogin
from voice_constructs.azure.kubernetes.telemetry import telemetry_sidecar

NAME = Component.VAD.value
RUN = Mount(name="run", mount_path=VAD_RUN_DIR)
"""Where the data plane's control socket is, which telemetry asks."""


class Vad(pulumi.ComponentResource):
    """Pods of the data plane as an ordinary user without capabilities, and a load balancer for UDP.

    Attributes:
        pods: The pods.
        load_balancer: Has the public address that the cluster's program made, and shows pods who sends.
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
        super().__init__(f"{TYPE_PREFIX}:Vad", NAME, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        run = k8s.core.v1.EmptyDirVolumeSourceArgs(medium="Memory", size_limit=f"{8 * settings.cpus}Mi")
        reads = telemetry_sidecar(context, Component.VAD, "dataplane", login, [RUN])
        self.pods = CpuReplicas(
            context=context,
            scaling=scaling,
            props=CpuReplicasProps(
                component=Component.VAD,
                main=_container(context, settings, login),
                sidecars=[login.sidecar(Component.VAD), reads],
                bounds=settings.replicas,
                drain_s=settings.drain_timeout_s,
                images=CALLER_TIER_IMAGES[Component.VAD],
                # No CPU: a core that polls is always busy.
                triggers=[places_trigger(Component.VAD)],
                volumes=[*login.volumes(), Volume(name="run", empty_dir=run)],
            ),
            needs=[login.config],
            opts=child,
        )
        self.load_balancer = LoadBalancer(
            NAME,
            context=context,
            selector=self.pods.selector,
            ports=[RTP],
            health=VAD_NODE_HEALTH,
            reason="callers send SRTP; whoever has no session is not heard",
            annotations={
                "azure-pip-name": cluster.require_output(ClusterOutput.RTP_ADDRESS_NAME),
                "azure-load-balancer-resource-group": cluster.require_output(ClusterOutput.RESOURCE_GROUP),
            },
            opts=child,
        )
        self.register_outputs({})


def _container(context: ClusterContext, settings: VadPods, login: StateLogin) -> LaunchedContainer:
    answers = k8s.core.v1.TCPSocketActionArgs(port=VAD_HEALTH.number)
    return LaunchedContainer(
        name=NAME,
        image=context.image_uri(Image.VAD_DATAPLANE),
        launcher=vad(settings, least(vad_pod(settings)).calls),
        share=Share(settings.cpus, settings.memory_gib),
        ports={"rtp": RTP, "health": VAD_HEALTH},
        startup=Probe(tcp_socket=answers, period_seconds=2, failure_threshold=60),
        # The port is closed while no packets can flow, and from the beginning of a drain.
        readiness=Probe(tcp_socket=answers, period_seconds=5, failure_threshold=2),
        extra_environment=login.environment(Component.VAD),
        sources={HOST.name: of_pod("metadata.name"), HOST_ADDRESS.name: of_pod("status.podIP")},
        mounts=[*login.mounts(), RUN],
    )
