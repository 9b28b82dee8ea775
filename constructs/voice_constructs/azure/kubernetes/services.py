"""From a service of the deployment file to its replicas; all but cells have one engine in a pod."""

from typing import assert_never

import pulumi

from blueprint.azure.contract import ENGINE_HTTP, LMCACHE_HTTP
from blueprint.azure.names import replicas_name
from blueprint.contract.images import Image
from blueprint.engines.cell import cpus_beside_lmcache
from blueprint.engines.launch.base import Launcher
from blueprint.engines.launch.services import aggregated_launch, chat_launch, tts_launch
from blueprint.engines.sizing.service import PoolSizing, size_service
from blueprint.file.model.azure import AggregatedService, AzureService, ChatService, PrefillDecodeCell, TtsService
from blueprint.hosts import service_images
from blueprint.observability.azure_scaling import triggers
from voice_constructs.azure.kubernetes.cell import cells, lmcache_sidecar
from voice_constructs.azure.kubernetes.context import ClusterContext
from voice_constructs.azure.kubernetes.engine_replicas import EngineReplicasProps
from voice_constructs.azure.kubernetes.pods import (
    PRE_STOP_S,
    LaunchedContainer,
    Share,
    engine_probes,
    model_cache_mount,
    shared_memory_mount,
)
from voice_constructs.azure.kubernetes.topology_check import topology_check


def replicas_of(context: ClusterContext, service: AzureService) -> list[EngineReplicasProps]:
    """Return the sets of replicas of one service: one, or for a chat service one on each of its pools."""
    match service:
        case PrefillDecodeCell():
            return [cells(context, service)]
        case AggregatedService():
            return [_aggregated(context, service)]
        case ChatService():
            return [_chat(context, service, sized) for sized in size_service(context.azure, service).pools]
        case TtsService():
            return [_tts(context, service)]
    assert_never(service)


def _aggregated(context: ClusterContext, service: AggregatedService) -> EngineReplicasProps:
    """Engines that prefill and decode, with or without an LMCache server beside each."""
    launch = aggregated_launch(context.azure, service)
    (sized,) = size_service(context.azure, service).pools
    image = context.image_uri(Image.ASR_VLLM)
    sidecars = []
    if launch.lmcache and service.lmcache:
        nvme = service.lmcache.l2_nvme_gib > 0
        lmcache = context.image_uri(Image.LMCACHE)
        sidecars = [lmcache_sidecar("lmcache", lmcache, launch.lmcache, LMCACHE_HTTP, nvme=nvme)]
    cpus = cpus_beside_lmcache(service.cpus) if sidecars else service.cpus
    size, gpus = context.vm_size(service.pool), service.tensor_parallel
    return EngineReplicasProps(
        kind="AggregatedReplicas",
        service=service,
        pool=service.pool,
        name=replicas_name(service, service.pool),
        checks=[topology_check(image, size, gpus)] if gpus > 1 else [],
        sidecars=sidecars,
        engines=[_engine(image, launch.engine, cpus, sized)],
        triggers=triggers(context.azure, service)[service.pool],
        shared_memory_gib=_of_one_pod(sized, sized.host.shared_memory_gib + sized.host.kv_pools_gib),
        nvme_gib=service.lmcache.l2_nvme_gib if service.lmcache else 0,
        share_processes=bool(sidecars),
    )


def _chat(context: ClusterContext, service: ChatService, sized: PoolSizing) -> EngineReplicasProps:
    """One engine class of a chat service: its replicas on one of its pools, with the flags of that pool's GPU."""
    launcher = chat_launch(context.azure, service, sized.pool)
    return _one_engine(context, service, launcher, sized, kind="ChatReplicas")


def _tts(context: ClusterContext, service: TtsService) -> EngineReplicasProps:
    """Text to speech: one GPU with both stages, which hand sound over through shared memory."""
    (sized,) = size_service(context.azure, service).pools
    launcher = tts_launch(context.azure, service)
    return _one_engine(context, service, launcher, sized, kind="TtsReplicas")


def _one_engine(
    context: ClusterContext,
    service: ChatService | TtsService,
    launcher: Launcher,
    sized: PoolSizing,
    *,
    kind: str,
) -> EngineReplicasProps:
    (image,) = service_images(service)
    return EngineReplicasProps(
        kind=kind,
        service=service,
        pool=sized.pool,
        name=replicas_name(service, sized.pool),
        engines=[_engine(context.image_uri(image), launcher, service.cpus, sized)],
        triggers=triggers(context.azure, service)[sized.pool],
        shared_memory_gib=_of_one_pod(sized, sized.host.shared_memory_gib),
    )


def _engine(image: pulumi.Output[str], launcher: Launcher, cpus: int, sized: PoolSizing) -> LaunchedContainer:
    memory_gib = _of_one_pod(sized, sized.host.engines_gib + sized.host.shared_memory_gib)
    return LaunchedContainer(
        name="engine",
        image=image,
        launcher=launcher,
        share=Share(cpus, memory_gib, sized.gpus_per_replica),
        ports={"http": ENGINE_HTTP},
        **engine_probes(ENGINE_HTTP),
        mounts=[model_cache_mount(), shared_memory_mount()],
        pre_stop_s=PRE_STOP_S,
    )


def _of_one_pod(sized: PoolSizing, gib: float) -> float:
    """Return one pod's part of what a full node has."""
    return gib / sized.replicas_per_node
