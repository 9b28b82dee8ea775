"""Replicas of each service in the deployment file. All kinds except cells have one engine per pod."""

from dataclasses import replace
from typing import assert_never

import pulumi

from voice_blueprint.azure.contract import ENGINE_HTTP, LMCACHE_HTTP
from voice_blueprint.azure.names import build_engine_workload_name
from voice_blueprint.contract.images import Image
from voice_blueprint.engines.cell import calculate_single_engine_cpus
from voice_blueprint.engines.launch.omni import OmniServer
from voice_blueprint.engines.launch.services import (
    STOP_MARGIN_S,
    create_aggregated_processes,
    create_chat_launcher,
    create_tts_launcher,
)
from voice_blueprint.engines.launch.vllm import VllmServer
from voice_blueprint.engines.sizing.service import PoolSizing, size_service
from voice_blueprint.file.model.azure import AggregatedService, AzureService, ChatService, PrefillDecodeCell, TtsService
from voice_blueprint.hosts import list_service_images
from voice_blueprint.observability.azure.scaling import build_scaling_triggers
from voice_constructs.azure.kubernetes.cell import create_cell_replica_props, create_lmcache_sidecar
from voice_constructs.azure.kubernetes.context import ClusterContext
from voice_constructs.azure.kubernetes.engine_check import EngineCheckLauncher, create_engine_probes
from voice_constructs.azure.kubernetes.engine_replicas import EngineReplicasProps
from voice_constructs.azure.kubernetes.pods import (
    ENGINE_PRE_STOP_S,
    ContainerResources,
    ContainerSpec,
    create_model_cache_mount,
    create_shared_memory_mount,
)
from voice_constructs.azure.kubernetes.speech_drain import SpeechDrainLauncher, build_drain_hook_command
from voice_constructs.azure.kubernetes.topology_check import create_topology_check_container


def create_service_replica_props(context: ClusterContext, service: AzureService) -> list[EngineReplicasProps]:
    """Return the replicas of a service. A chat service has one element per pool; other services have one in total."""
    match service:
        case PrefillDecodeCell():
            return [create_cell_replica_props(context, service)]
        case AggregatedService():
            return [_create_aggregated_replica_props(context, service)]
        case ChatService():
            return [
                _create_chat_replica_props(context, service, sizing)
                for sizing in size_service(context.azure, service).pools
            ]
        case TtsService():
            return [_create_tts_replica_props(context, service)]
    assert_never(service)


def _create_aggregated_replica_props(context: ClusterContext, service: AggregatedService) -> EngineReplicasProps:
    """Return engines that prefill and decode, optionally with an LMCache server each."""
    launch = create_aggregated_processes(context.azure, service)
    (sizing,) = size_service(context.azure, service).pools
    image = context.get_image_uri(Image.ASR_VLLM)
    sidecars = []
    if launch.lmcache and service.lmcache:
        nvme = service.lmcache.l2_nvme_gib > 0
        lmcache = image if launch.lmcache.peers else context.get_image_uri(Image.LMCACHE)
        sidecars = [create_lmcache_sidecar("lmcache", lmcache, launch.lmcache, LMCACHE_HTTP, nvme=nvme)]
    cpus = calculate_single_engine_cpus(service.cpus) if sidecars else service.cpus
    size, gpus = context.get_vm_size(service.pool), service.tensor_parallel
    return EngineReplicasProps(
        kind="AggregatedReplicas",
        service=service,
        pool=service.pool,
        name=build_engine_workload_name(service, service.pool),
        check_containers=[create_topology_check_container(image, size, gpus)] if gpus > 1 else [],
        sidecars=sidecars,
        engines=[_create_engine_container(image, launch.engine, cpus, sizing)],
        triggers=build_scaling_triggers(context.azure, service)[service.pool],
        shared_memory_gib=_calculate_gib_per_pod(sizing, sizing.host.shared_memory_gib + sizing.host.kv_pools_gib),
        nvme_gib=service.lmcache.l2_nvme_gib if service.lmcache else 0,
        shares_process_namespace=bool(sidecars),
    )


def _create_chat_replica_props(
    context: ClusterContext, service: ChatService, sizing: PoolSizing
) -> EngineReplicasProps:
    """Return the replicas of a chat service on one pool, with the flags for that pool's GPU."""
    launcher = create_chat_launcher(context.azure, service, sizing.pool)
    return _create_single_engine_replica_props(context, service, launcher, sizing, kind="ChatReplicas")


def _create_tts_replica_props(context: ClusterContext, service: TtsService) -> EngineReplicasProps:
    """Return text-to-speech replicas: one GPU with both stages, which exchange audio through shared memory."""
    (sizing,) = size_service(context.azure, service).pools
    launcher = create_tts_launcher(context.azure, service)
    return _create_single_engine_replica_props(context, service, launcher, sizing, kind="TtsReplicas")


def _create_single_engine_replica_props(
    context: ClusterContext,
    service: ChatService | TtsService,
    launcher: VllmServer | OmniServer,
    sizing: PoolSizing,
    *,
    kind: str,
) -> EngineReplicasProps:
    (image,) = list_service_images(service)
    return EngineReplicasProps(
        kind=kind,
        service=service,
        pool=sizing.pool,
        name=build_engine_workload_name(service, sizing.pool),
        engines=[
            _add_drain_hook(
                service, _create_engine_container(context.get_image_uri(image), launcher, service.cpus, sizing)
            )
        ],
        triggers=build_scaling_triggers(context.azure, service)[sizing.pool],
        shared_memory_gib=_calculate_gib_per_pod(sizing, sizing.host.shared_memory_gib),
    )


def _create_engine_container(
    image: pulumi.Output[str], launcher: VllmServer | OmniServer, cpus: int, sized: PoolSizing
) -> ContainerSpec:
    memory_gib = _calculate_gib_per_pod(sized, sized.host.engines_gib + sized.host.shared_memory_gib)
    return ContainerSpec(
        name="engine",
        image=image,
        launcher=EngineCheckLauncher(launcher),
        resources=ContainerResources(cpus, memory_gib, sized.gpus_per_replica),
        ports={"http": ENGINE_HTTP},
        **create_engine_probes("engine", ENGINE_HTTP, launcher.model),
        mounts=[create_model_cache_mount(), create_shared_memory_mount()],
        pre_stop_s=ENGINE_PRE_STOP_S,
    )


def _add_drain_hook(service: ChatService | TtsService, engine: ContainerSpec) -> ContainerSpec:
    """Return the engine with a drain hook if required. vLLM drains after SIGTERM; vLLM-Omni requires a preStop hook."""
    if not isinstance(service, TtsService):
        return engine
    return replace(
        engine,
        launcher=SpeechDrainLauncher(engine.launcher),
        pre_stop_s=0,
        pre_stop_command=build_drain_hook_command(
            ENGINE_HTTP, settle_s=engine.pre_stop_s, drain_s=service.drain_timeout_s - STOP_MARGIN_S
        ),
    )


def _calculate_gib_per_pod(sizing: PoolSizing, gib: float) -> float:
    """Return one pod's share of an amount that is specified for a full node."""
    return gib / sizing.replicas_per_node
