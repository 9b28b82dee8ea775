"""Services with one engine in a pod: aggregated, chat and text to speech."""

from collections.abc import Sequence

import pulumi

from blueprint.azure.contract import ENGINE_HTTP, LMCACHE_HTTP
from blueprint.contract.images import Image
from blueprint.engines.cell import cpus_beside_lmcache
from blueprint.engines.launch.base import Launcher
from blueprint.engines.launch.services import aggregated_launch, chat_launch, tts_launch
from blueprint.engines.sizing.service import PoolSizing, size_service
from blueprint.file.model.azure import AggregatedService, ChatService, TtsService
from blueprint.hosts import service_images
from voice_constructs.azure.kubernetes.cell import lmcache_sidecar
from voice_constructs.azure.kubernetes.context import ClusterContext
from voice_constructs.azure.kubernetes.engine_replicas import EngineReplicas, EngineReplicasProps
from voice_constructs.azure.kubernetes.pods import (
    PRE_STOP_S,
    LaunchedContainer,
    Share,
    engine_probes,
    model_cache_mount,
    shared_memory_mount,
)
from voice_constructs.azure.kubernetes.scaling import Scaling, aggregated_triggers
from voice_constructs.azure.kubernetes.topology_check import topology_check


class AggregatedReplicas(EngineReplicas):
    """Replicas that prefill and decode, with or without an LMCache server beside each."""

    def __init__(
        self,
        *,
        context: ClusterContext,
        scaling: Scaling,
        service: AggregatedService,
        needs: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions,
    ) -> None:
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
        props = EngineReplicasProps(
            service=service,
            pool=service.pool,
            name=service.name,
            images=service_images(service),
            checks=[topology_check(image, size, gpus)] if gpus > 1 else [],
            sidecars=sidecars,
            engines=[_engine(image, launch.engine, cpus, sized)],
            triggers=aggregated_triggers(service.name, service.pool, sized.engine.sessions),
            shared_memory_gib=_of_one_pod(sized, sized.host.shared_memory_gib + sized.host.kv_pools_gib),
            nvme_gib=service.lmcache.l2_nvme_gib if service.lmcache else 0,
            share_processes=bool(sidecars),
        )
        super().__init__("AggregatedReplicas", context=context, scaling=scaling, props=props, needs=needs, opts=opts)


class ChatReplicas(EngineReplicas):
    """One engine class of a chat service: its replicas on one of its pools, with the flags of that pool's GPU."""

    def __init__(
        self,
        *,
        context: ClusterContext,
        scaling: Scaling,
        service: ChatService,
        pool: str,
        needs: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions,
    ) -> None:
        sized = next(each for each in size_service(context.azure, service).pools if each.pool == pool)
        launcher = chat_launch(context.azure, service, pool)
        props = _one_engine(context, service, launcher, sized, name=f"{service.name}-{pool}")
        super().__init__("ChatReplicas", context=context, scaling=scaling, props=props, needs=needs, opts=opts)


class TtsReplicas(EngineReplicas):
    """Replicas of text to speech: one GPU with both stages, which hand sound over through shared memory."""

    def __init__(
        self,
        *,
        context: ClusterContext,
        scaling: Scaling,
        service: TtsService,
        needs: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions,
    ) -> None:
        (sized,) = size_service(context.azure, service).pools
        launcher = tts_launch(context.azure, service)
        props = _one_engine(context, service, launcher, sized, name=service.name, kv_cache=False)
        super().__init__("TtsReplicas", context=context, scaling=scaling, props=props, needs=needs, opts=opts)


def _one_engine(
    context: ClusterContext,
    service: ChatService | TtsService,
    launcher: Launcher,
    sized: PoolSizing,
    *,
    name: str,
    kv_cache: bool = True,
) -> EngineReplicasProps:
    (image,) = service_images(service)
    return EngineReplicasProps(
        service=service,
        pool=sized.pool,
        name=name,
        images=(image,),
        engines=[_engine(context.image_uri(image), launcher, service.cpus, sized)],
        triggers=aggregated_triggers(service.name, sized.pool, sized.engine.sessions, kv_cache=kv_cache),
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
