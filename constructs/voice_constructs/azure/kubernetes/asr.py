"""The speech recognition engine on the cluster.

The engine receives chunks of speech, sends utterances to the transcription services, and returns transcripts.
"""

import pulumi

from voice_blueprint.azure.contract import Component
from voice_blueprint.azure.rollout import ENGINE_STARTUP_TIMEOUT_S
from voice_blueprint.contract.environment import HOST, HOST_ADDRESS
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.metrics import ENGINE_METRICS_PATH
from voice_blueprint.contract.network import CHUNK, ENGINE_HEALTH
from voice_blueprint.contract.session_api import HEALTH_PATH
from voice_blueprint.file.model.azure_callers import AsrPods
from voice_blueprint.hosts import IMAGES_BY_CALLER_TIER
from voice_blueprint.observability.azure.scaling import build_cpu_trigger, build_slots_trigger
from voice_constructs.azure.kubernetes.context import ClusterContext
from voice_constructs.azure.kubernetes.cpu_replicas import CpuReplicas, CpuReplicasProps
from voice_constructs.azure.kubernetes.pods import (
    ContainerResources,
    ContainerSpec,
    create_http_probe,
    create_liveness_probe,
    create_pod_field_source,
)
from voice_constructs.azure.kubernetes.programs import create_asr_program
from voice_constructs.azure.kubernetes.scaling import Scaling
from voice_constructs.azure.kubernetes.state_login import StateLogin
from voice_constructs.azure.kubernetes.telemetry import create_telemetry_sidecar


def create_asr_replicas(
    *,
    context: ClusterContext,
    settings: AsrPods,
    login: StateLogin,
    scaling: Scaling,
    opts: pulumi.ResourceOptions,
) -> CpuReplicas:
    """Create the pods of the speech recognition engine.

    The pods have no load balancer, since the data plane finds them in the host registry.
    """
    main = ContainerSpec(
        name=Component.ASR.value,
        image=context.get_image_uri(Image.WHISPER_ENGINE),
        launcher=create_asr_program(settings),
        resources=ContainerResources(settings.cpus, settings.memory_gib),
        ports={"chunks": CHUNK, "health": ENGINE_HEALTH},
        # The port opens once the router knows the model, which may require the first GPU node.
        startup=create_http_probe(
            ENGINE_HEALTH, ENGINE_METRICS_PATH, period_s=10, failures=ENGINE_STARTUP_TIMEOUT_S // 10
        ),
        # The readiness endpoint fails while the engine drains; the metrics endpoint responds as long as the engine
        # runs.
        liveness=create_liveness_probe(ENGINE_HEALTH, ENGINE_METRICS_PATH),
        readiness=create_http_probe(ENGINE_HEALTH, HEALTH_PATH, period_s=5, failures=2),
        extra_environment=login.build_environment(Component.ASR),
        environment_sources={
            HOST.name: create_pod_field_source("metadata.name"),
            HOST_ADDRESS.name: create_pod_field_source("status.podIP"),
        },
        mounts=login.create_mounts(),
    )
    return CpuReplicas(
        context=context,
        scaling=scaling,
        props=CpuReplicasProps(
            component=Component.ASR,
            main_container=main,
            sidecars=[
                login.create_sidecar(Component.ASR),
                create_telemetry_sidecar(context, Component.ASR, "engine", login),
            ],
            replica_bounds=settings.replicas,
            drain_s=settings.drain_timeout_s,
            images=IMAGES_BY_CALLER_TIER[Component.ASR],
            triggers=[build_slots_trigger(Component.ASR), build_cpu_trigger(Component.ASR, settings.cpus)],
            volumes=login.create_volumes(),
        ),
        needs=[login.config],
        opts=opts,
    )
