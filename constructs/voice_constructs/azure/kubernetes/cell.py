"""A prefill/decode cell: one pod on all GPUs of a node."""

from dataclasses import replace

import pulumi
import pulumi_kubernetes as k8s

from voice_blueprint.azure.contract import (
    DECODE_HTTP,
    DECODE_LMCACHE_HTTP,
    ENGINE_HTTP,
    LMCACHE_HTTP,
    PD_ROUTER_HTTP,
    PREFILL_HTTP,
)
from voice_blueprint.azure.names import replicas_name
from voice_blueprint.catalog import VmSize
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.network import Port
from voice_blueprint.engines.cell import (
    FRONT_CPUS,
    FRONT_GIB,
    HOLDER_CPUS,
    HOLDER_GIB,
    LMCACHE_CPUS,
    LMCACHE_PROCESS_GIB,
    PD_ROUTER_CPUS,
    PD_ROUTER_GIB,
    check_cell_cpus,
    engine_cpus,
)
from voice_blueprint.engines.launch.base import Launcher
from voice_blueprint.engines.launch.fabric import TRANSPORTS
from voice_blueprint.engines.launch.lmcache import LmcacheServer
from voice_blueprint.engines.launch.services import POD_ADDRESS, CellLaunch, cell_launch
from voice_blueprint.engines.launch.vllm import VllmServer
from voice_blueprint.engines.sizing.layouts import cell_gpu_groups
from voice_blueprint.engines.sizing.service import PoolSizing, size_service
from voice_blueprint.file.model.azure import PrefillDecodeCell, WithoutPeerAccess
from voice_blueprint.observability.azure.scaling import scaling_triggers
from voice_constructs.azure.kubernetes.context import ClusterContext
from voice_constructs.azure.kubernetes.engine_check import (
    CheckedLauncher,
    engine_liveness_probe,
    engine_readiness_probe,
)
from voice_constructs.azure.kubernetes.engine_replicas import EngineReplicasProps, nvme_mount
from voice_constructs.azure.kubernetes.pods import (
    ENGINE_PRE_STOP_S,
    LaunchedContainer,
    Probe,
    Share,
    http_probe,
    model_cache_mount,
    pod_field,
    shared_memory_mount,
    startup_probe,
)
from voice_constructs.azure.kubernetes.topology_check import CacheTransfer, topology_check
from voice_constructs.azure.kubernetes.transport_check import READY_FILE, TransportCheck

ALL_GPUS_VISIBLE = {"NVIDIA_VISIBLE_DEVICES": "all"}
"""Variable of the NVIDIA runtime, which is the default runtime of AKS GPU nodes. Its handler is
``nvidia-container-runtime``, and there is no RuntimeClass ``nvidia`` to refer to (https://github.com/Azure/AgentBaker).
The device plugin overwrites the variable in containers that request GPUs
(https://github.com/NVIDIA/nvidia-container-toolkit/issues/27)."""

_PD_ROUTER_PROBE_PROGRAM = "import socket; socket.create_connection(('127.0.0.1', {port}), 3)"


class GpuReservation(Launcher):
    """Process of the container that requests the pod's GPUs. It only sleeps."""

    def command(self) -> tuple[str, ...]:
        """Return a program that exits on SIGTERM."""
        return ("sleep", "infinity")


def cell_replicas(context: ClusterContext, service: PrefillDecodeCell) -> EngineReplicasProps:
    """Return the properties of a service's cells.

    A cell is one pod per node. Prefill uses one NVLink pair, decode uses the other, and KV cache is transferred inside
    the node.

    Engines in separate pods, or in containers that do not see each other's GPUs, silently fall back to TCP. Here the
    containers share processes and shared memory, and all of them see all GPUs. A container that requests GPUs only sees
    its own, so neither engine requests any: a sleeping container requests all of them, which keeps the scheduler's
    accounting correct. As a result, the kubelet aligns the engines' NUMA nodes by their CPUs only: an engine that
    requested four GPUs would be aligned with all four NUMA nodes, and rejected under the kubelet's policy
    ``restricted``. ``voice_blueprint.engines.cell`` specifies the amounts.

    The LMCache servers, the P/D router and the front are sidecars: they start before the engines and stop after them,
    so that requests drain through them.
    """
    launch = cell_launch(context.azure, service)
    (sizing,) = size_service(context.azure, service).pools
    size = context.vm_size(service.pool)
    check_cell_cpus(size, service.cpus, context.pool(service.pool).topology_policy)
    engine_image = context.image_uri(Image.ASR_VLLM)
    return EngineReplicasProps(
        kind="PrefillDecodeCells",
        service=service,
        pool=service.pool,
        name=replicas_name(service, service.pool),
        checks=[topology_check(engine_image, size, size.gpu_count, _cache_transfer(service, size))],
        sidecars=_sidecars(context, launch, nvme=service.lmcache.l2_nvme_gib > 0),
        engines=_engines(engine_image, launch, service, sizing, size),
        triggers=scaling_triggers(context.azure, service)[service.pool],
        # The pools may be counted twice, since servers keep them in their own memory or in shared memory.
        shared_memory_gib=sizing.host.shared_memory_gib + sizing.host.kv_pools_gib,
        nvme_gib=service.lmcache.l2_nvme_gib,
        whole_node=True,
        share_processes=True,
    )


def _cache_transfer(service: PrefillDecodeCell, size: VmSize) -> CacheTransfer:
    return CacheTransfer(cell_gpu_groups(size), TRANSPORTS, service.without_peer_access is WithoutPeerAccess.REFUSE)


def _engines(
    image: pulumi.Output[str], launch: CellLaunch, service: PrefillDecodeCell, sizing: PoolSizing, size: VmSize
) -> list[LaunchedContainer]:
    """Return the prefill, decode and GPU containers. Prefill is first, since it gets the first NUMA nodes."""
    share = Share(engine_cpus(service.cpus), (sizing.host.engines_gib + sizing.host.shared_memory_gib) / 2)
    holder = LaunchedContainer(
        name="gpus",
        image=image,
        launcher=GpuReservation(),
        share=Share(HOLDER_CPUS, HOLDER_GIB, size.gpu_count),
        ports={},
    )
    return [
        _engine_container("prefill", image, launch.prefill, PREFILL_HTTP, share),
        replace(
            _engine_container("decode", image, launch.decode, DECODE_HTTP, share),
            launcher=CheckedLauncher(TransportCheck(launch.decode, service.without_peer_access)),
            readiness=Probe(exec_=k8s.core.v1.ExecActionArgs(command=["test", "-e", READY_FILE]), period_seconds=5),
        ),
        holder,
    ]


def _engine_container(
    name: str, image: pulumi.Output[str], launcher: VllmServer, port: Port, share: Share
) -> LaunchedContainer:
    return LaunchedContainer(
        name=name,
        image=image,
        launcher=CheckedLauncher(launcher),
        share=share,
        ports={name: port},
        startup=startup_probe(port),
        liveness=engine_liveness_probe(name, port, launcher.model),
        # The readiness of the pod is determined by the front, which sends a request to both engines.
        readiness=http_probe(port, "/health", period_s=5, failures=2),
        mounts=[model_cache_mount(), shared_memory_mount()],
        extra_environment=ALL_GPUS_VISIBLE,
        pre_stop_s=ENGINE_PRE_STOP_S,
    )


def _sidecars(context: ClusterContext, launch: CellLaunch, *, nvme: bool) -> list[LaunchedContainer]:
    lmcache, router = context.image_uri(Image.LMCACHE), context.image_uri(Image.PD_ROUTER)
    return [
        lmcache_sidecar("lmcache", lmcache, launch.lmcache_prefill, LMCACHE_HTTP, nvme=nvme),
        lmcache_sidecar("lmcache-decode", lmcache, launch.lmcache_decode, DECODE_LMCACHE_HTTP, nvme=nvme),
        _relay_container(
            "pd-router",
            router,
            launch.pd_router,
            share=Share(PD_ROUTER_CPUS, PD_ROUTER_GIB),
            ports={},
            readiness=_pd_router_probe(),
        ),
        _relay_container(
            "front",
            router,
            CheckedLauncher(launch.front),
            share=Share(FRONT_CPUS, FRONT_GIB),
            ports={"front": ENGINE_HTTP},
            readiness=engine_readiness_probe("front", (PREFILL_HTTP, DECODE_HTTP), ENGINE_HTTP, launch.decode.model),
        ),
    ]


def lmcache_sidecar(
    name: str, image: pulumi.Output[str], launcher: LmcacheServer, port: Port, *, nvme: bool
) -> LaunchedContainer:
    """Return the sidecar that runs an LMCache server.

    Engines start once the server is ready, and stop before it. The container requests no GPUs but sees all of them,
    since the server opens the GPU memory of its engine.
    """
    return LaunchedContainer(
        name=name,
        image=image,
        launcher=launcher,
        share=Share(LMCACHE_CPUS, launcher.l1_gib + LMCACHE_PROCESS_GIB),
        ports={name: port},
        startup=http_probe(port, "/healthcheck", period_s=5, failures=120),
        liveness=http_probe(port, "/healthcheck", period_s=10, failures=6),
        mounts=[shared_memory_mount(), *([nvme_mount()] if nvme else [])],
        sources={POD_ADDRESS: pod_field("status.podIP")} if launcher.peers else None,
        sidecar=True,
    )


def _relay_container(
    name: str, image: pulumi.Output[str], launcher: Launcher, *, share: Share, ports: dict[str, Port], readiness: Probe
) -> LaunchedContainer:
    """Return a sidecar that forwards requests. It has no startup probe, since the engines start after it."""
    return LaunchedContainer(
        name=name, image=image, launcher=launcher, share=share, ports=ports, readiness=readiness, sidecar=True
    )


def _pd_router_probe() -> Probe:
    """Return an exec probe of the P/D router, since the kubelet cannot reach its loopback address."""
    program = _PD_ROUTER_PROBE_PROGRAM.format(port=PD_ROUTER_HTTP.number)
    return Probe(
        exec_=k8s.core.v1.ExecActionArgs(command=["python3", "-c", program]),
        period_seconds=10,
        timeout_seconds=5,
        failure_threshold=3,
    )
