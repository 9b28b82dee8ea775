"""Our engine on the cluster: chunks of speech in, utterances to the services that transcribe, transcripts out."""

import pulumi

from blueprint.azure.contract import Component
from blueprint.contract.environment import HOST, HOST_ADDRESS
from blueprint.contract.images import Image
from blueprint.contract.network import CHUNK, ENGINE_HEALTH
from blueprint.contract.session_api import HEALTH_PATH
from blueprint.engines.launch.callers import asr
from blueprint.file.model.azure_callers import AsrPods
from blueprint.hosts import CALLER_TIER_IMAGES
from blueprint.observability.azure_scaling import cpu_trigger, places_trigger
from voice_constructs.azure.kubernetes.context import ClusterContext
from voice_constructs.azure.kubernetes.cpu_replicas import CpuReplicas, CpuReplicasProps
from voice_constructs.azure.kubernetes.pods import LaunchedContainer, Share, http_probe, of_pod
from voice_constructs.azure.kubernetes.scaling import Scaling
from voice_constructs.azure.kubernetes.state_login import StateLogin
from voice_constructs.azure.kubernetes.telemetry import telemetry_sidecar


def asr_front(
    *,
    context: ClusterContext,
    settings: AsrPods,
    login: StateLogin,
    scaling: Scaling,
    opts: pulumi.ResourceOptions,
) -> CpuReplicas:
    """Return its pods. There is no load balancer: the data plane finds them in the host registry."""
    main = LaunchedContainer(
        name=Component.ASR.value,
        image=context.image_uri(Image.WHISPER_ENGINE),
        launcher=asr(settings),
        share=Share(settings.cpus, settings.memory_gib),
        ports={"chunks": CHUNK, "health": ENGINE_HEALTH},
        # It is ready when the router knows the model: as late as the first GPU node.
        readiness=http_probe(ENGINE_HEALTH, HEALTH_PATH, period_s=5, failures=2),
        extra_environment=login.environment(Component.ASR),
        sources={HOST.name: of_pod("metadata.name"), HOST_ADDRESS.name: of_pod("status.podIP")},
        mounts=login.mounts(),
    )
    return CpuReplicas(
        context=context,
        scaling=scaling,
        props=CpuReplicasProps(
            component=Component.ASR,
            main=main,
            sidecars=[login.sidecar(Component.ASR), telemetry_sidecar(context, Component.ASR, "engine", login)],
            bounds=settings.replicas,
            drain_s=settings.drain_timeout_s,
            images=CALLER_TIER_IMAGES[Component.ASR],
            triggers=[places_trigger(Component.ASR), cpu_trigger(Component.ASR, settings.cpus)],
            volumes=login.volumes(),
        ),
        needs=[login.config],
        opts=opts,
    )
