"""Replicas of each service in the deployment file. All kinds except cells have one engine per pod."""

from dataclasses import replace
from typing import assert_never

import pulumi

from voice_blueprint.azure.contract import ENGINE_HTTP, LMCACHE_HTTP
from voice_blueprint.azure.names import replicas_name
from voice_blueprint.contract.images import Image
from voice_blueprint.engines.cell import cpus_without_lmcache
from voice_blueprint.engines.launch.omni import OmniServer
from voice_blueprint.engines.launch.services import STOP_MARGIN_S, aggregated_launch, chat_launch, tts_launch
from voice_blueprint.engines.launch.vllm import VllmServer
from voice_blueprint.engines.sizing.service import PoolSizing, size_service
from voice_blueprint.file.model.azure import AggregatedService, AzureService, ChatService, PrefillDecodeCell, TtsService
from voice_blueprint.hosts import service_images
from voice_blueprint.observability.azure.scaling import scaling_triggers
from voice_constructs.azure.kubernetes.cell import cell_replicas, lmcache_sidecar
from voice_constructs.azure.kubernetes.context import ClusterContext
from voice_constructs.azure.kubernetes.engine_check import CheckedLauncher, engine_probes
from voice_constructs.azure.kubernetes.engine_replicas import EngineReplicasProps
from voice_constructs.azure.kubernetes.pods import (
    ENGINE_PRE_STOP_S,
    LaunchedContainer,
    Share,
    model_cache_mount,
    shared_memory_mount,
)
from voice_constructs.azure.kubernetes.speech_drain import DrainedLauncher, drain_hook
from voice_constructs.azure.kubernetes.topology_check import topology_check


def replicas_for(context: ClusterContext, service: AzureService) -> list[EngineReplicasProps]:
    """Return the replicas of a service. A chat service has one element per pool; other services have one in total."""
    match service:
        case PrefillDecodeCell():
            return [cell_replicas(context, service)]
        case AggregatedService():
            return [_aggregated_replicas(context, service)]
        case ChatService():
            return [_chat_replicas(context, service, sizing) for sizing in size_service(context.azure, service).pools]
        case TtsService():
            return [_tts_replicas(context, service)]
    assert_never(service)


def _aggregated_replicas(context: ClusterContext, service: AggregatedService) -> EngineReplicasProps:
    """Return engines that prefill and decode, optionally with an LMCache server each."""
    launch = aggregated_launch(context.azure, service)
    (sizing,) = size_service(context.azure, service).pools
    image = context.image_uri(Image.ASR_VLLM)
    sidecars = []
    if launch.lmcache and service.lmcache:
        nvme = service.lmcache.l2_nvme_gib > 0
        lmcache = image if launch.lmcache.peers else context.image_uri(Image.LMCACHE)
        sidecars = [lmcache_sidecar("lmcache", lmcache, launch.lmcache, LMCACHE_HTTP, nvme=nvme)]
    cpus = cpus_without_lmcache(service.cpus) if sidecars else service.cpus
    size, gpus = context.vm_size(service.pool), service.tensor_parallel
    return EngineReplicasProps(
        kind="AggregatedReplicas",
        service=service,
        pool=service.pool,
        name=replicas_name(service, service.pool),
        checks=[topology_check(image, size, gpus)] if gpus > 1 else [],
        sidecars=sidecars,
        engines=[_engine_container(image, launch.engine, cpus, sizing)],
        triggers=scaling_triggers(context.azure, service)[service.pool],
        shared_memory_gib=_pod_share(sizing, sizing.host.shared_memory_gib + sizing.host.kv_pools_gib),
        nvme_gib=service.lmcache.l2_nvme_gib if service.lmcache else 0,
        share_processes=bool(sidecars),
    )


def _chat_replicas(context: ClusterContext, service: ChatService, sizing: PoolSizing) -> EngineReplicasProps:
    """Return the replicas of a chat service on one pool, with the flags for that pool's GPU."""
    launcher = chat_launch(context.azure, service, sizing.pool)
    return _single_engine_replicas(context, service, launcher, sizing, kind="ChatReplicas")


def _tts_replicas(context: ClusterContext, service: TtsService) -> EngineReplicasProps:
    """Return text-to-speech replicas: one GPU with both stages, which exchange audio through shared memory."""
    (sizing,) = size_service(context.azure, service).pools
    launcher = tts_launch(context.azure, service)
    return _single_engine_replicas(context, service, launcher, sizing, kind="TtsReplicas")


def _single_engine_replicas(
    context: ClusterContext,
    service: ChatService | TtsService,
    launcher: VllmServer | OmniServer,
    sizing: PoolSizing,
    *,
    kind: str,
) -> EngineReplicasProps:
    (image,) = service_images(service)
    return EngineReplicasProps(
        kind=kind,
        service=service,
        pool=sizing.pool,
        name=replicas_name(service, sizing.pool),
        engines=[_add_drain(service, _engine_container(context.image_uri(image), launcher, service.cpus, sizing))],
        triggers=scaling_triggers(context.azure, service)[sizing.pool],
        shared_memory_gib=_pod_share(sizing, sizing.host.shared_memory_gib),
    )


def _engine_container(
    image: pulumi.Output[str], launcher: VllmServer | OmniServer, cpus: int, sized: PoolSizing
) -> LaunchedContainer:
    memory_gib = _pod_share(sized, sized.host.engines_gib + sized.host.shared_memory_gib)
    return LaunchedContainer(
        name="engine",
        image=image,
        launcher=CheckedLauncher(launcher),
        share=Share(cpus, memory_gib, sized.gpus_per_replica),
        ports={"http": ENGINE_HTTP},
        **engine_probes("engine", ENGINE_HTTP, launcher.model),
        mounts=[model_cache_mount(), shared_memory_mount()],
        pre_stop_s=ENGINE_PRE_STOP_S,
    )


def _add_drain(service: ChatService | TtsService, engine: LaunchedContainer) -> LaunchedContainer:
    """Return the engine with a drain. vLLM completes requests after SIGTERM; vLLM-Omni needs a hook before SIGTERM."""
    if not isinstance(service, TtsService):
        return engine
    return replace(
        engine,
        launcher=DrainedLauncher(engine.launcher),
        pre_stop_s=0,
        pre_stop_command=drain_hook(
            ENGINE_HTTP, settle_s=engine.pre_stop_s, drain_s=service.drain_timeout_s - STOP_MARGIN_S
        ),
    )


def _pod_share(sizing: PoolSizing, gib: float) -> float:
    """Return one pod's share of an amount on a full node."""
    return gib / sizing.replicas_per_node
