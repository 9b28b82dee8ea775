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
from voice_blueprint.azure.names import build_engine_workload_name
from voice_blueprint.catalog import VmSize
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.network import Port
from voice_blueprint.engines.cell import (
    FRONT_CPUS,
    FRONT_MEMORY_GIB,
    GPU_HOLDER_CPUS,
    GPU_HOLDER_MEMORY_GIB,
    LMCACHE_CPUS,
    LMCACHE_PROCESS_MEMORY_GIB,
    PD_ROUTER_CPUS,
    PD_ROUTER_MEMORY_GIB,
    calculate_cell_engine_cpus,
    validate_cell_cpus,
)
from voice_blueprint.engines.launch.base import Launcher
from voice_blueprint.engines.launch.fabric import UCX_TRANSPORTS
from voice_blueprint.engines.launch.lmcache import LmcacheServer
from voice_blueprint.engines.launch.services import POD_ADDRESS_VARIABLE, CellProcesses, create_cell_processes
from voice_blueprint.engines.launch.vllm import VllmServer
from voice_blueprint.engines.sizing.layouts import select_cell_gpu_groups
from voice_blueprint.engines.sizing.service import PoolSizing, size_service
from voice_blueprint.file.model.azure import MissingPeerAccessPolicy, PrefillDecodeCell
from voice_blueprint.observability.azure.scaling import build_scaling_triggers
from voice_constructs.azure.kubernetes.context import ClusterContext
from voice_constructs.azure.kubernetes.engine_check import (
    EngineCheckLauncher,
    create_engine_liveness_probe,
    create_engine_readiness_probe,
)
from voice_constructs.azure.kubernetes.engine_replicas import EngineReplicasProps, create_nvme_mount
from voice_constructs.azure.kubernetes.pods import (
    ENGINE_PRE_STOP_S,
    ContainerResources,
    ContainerSpec,
    Probe,
    create_http_probe,
    create_model_cache_mount,
    create_pod_field_source,
    create_shared_memory_mount,
    create_startup_probe,
)
from voice_constructs.azure.kubernetes.topology_check import CacheTransfer, create_topology_check_container
from voice_constructs.azure.kubernetes.transport_check import READY_FILE, TransportCheck

ALL_GPUS_ENVIRONMENT = {"NVIDIA_VISIBLE_DEVICES": "all"}
"""Variable of the NVIDIA runtime, which is the default runtime of AKS GPU nodes. Its handler is
``nvidia-container-runtime``, and there is no RuntimeClass ``nvidia`` to refer to (https://github.com/Azure/AgentBaker).
The device plugin overwrites the variable in containers that request GPUs
(https://github.com/NVIDIA/nvidia-container-toolkit/issues/27)."""

_PD_ROUTER_PROBE_TEMPLATE = "import socket; socket.create_connection(('127.0.0.1', {port}), 3)"


class GpuReservation(Launcher):
    """Process in the container that requests the pod's GPUs. It only sleeps."""

    def build_command(self) -> tuple[str, ...]:
        """Return a program that exits on SIGTERM."""
        return ("sleep", "infinity")


def create_cell_replica_props(context: ClusterContext, service: PrefillDecodeCell) -> EngineReplicasProps:
    """Return the properties of a service's cells.

    A cell is one pod per node. Prefill uses one NVLink pair, decode uses the other, and KV cache is transferred inside
    the node.

    Engines in separate pods, or in containers that do not see each other's GPUs, silently fall back to TCP. Here, the
    containers share a process namespace and shared memory, and all of them see all GPUs. A container that requests GPUs
    only sees its own, so neither engine requests any: a sleeping container requests all of them, which keeps the
    scheduler's accounting correct. As a result, the kubelet aligns the engines' NUMA nodes by their CPUs only: an
    engine that requested four GPUs would be aligned with all four NUMA nodes, and rejected under the kubelet's policy
    ``restricted``. ``voice_blueprint.engines.cell`` specifies the amounts.

    The LMCache servers, the P/D router and the front are sidecars: they start before the engines and stop after them,
    so that requests drain through them.
    """
    launch = create_cell_processes(context.azure, service)
    (sizing,) = size_service(context.azure, service).pools
    size = context.get_vm_size(service.pool)
    validate_cell_cpus(size, service.cpus, context.get_pool(service.pool).topology_policy)
    engine_image = context.get_image_uri(Image.ASR_VLLM)
    return EngineReplicasProps(
        kind="PrefillDecodeCells",
        service=service,
        pool=service.pool,
        name=build_engine_workload_name(service, service.pool),
        check_containers=[
            create_topology_check_container(engine_image, size, size.gpu_count, _create_cache_transfer(service, size))
        ],
        sidecars=_create_sidecars(context, launch, nvme=service.lmcache.l2_nvme_gib > 0),
        engines=_create_engine_containers(engine_image, launch, service, sizing, size),
        triggers=build_scaling_triggers(context.azure, service)[service.pool],
        # The KV pools may be counted twice, since LMCache servers keep them either in their own memory or in shared
        # memory.
        shared_memory_gib=sizing.host.shared_memory_gib + sizing.host.kv_pools_gib,
        nvme_gib=service.lmcache.l2_nvme_gib,
        uses_whole_node=True,
        shares_process_namespace=True,
    )


def _create_cache_transfer(service: PrefillDecodeCell, size: VmSize) -> CacheTransfer:
    return CacheTransfer(
        select_cell_gpu_groups(size), UCX_TRANSPORTS, service.without_peer_access is MissingPeerAccessPolicy.REFUSE
    )


def _create_engine_containers(
    image: pulumi.Output[str], launch: CellProcesses, service: PrefillDecodeCell, sizing: PoolSizing, size: VmSize
) -> list[ContainerSpec]:
    """Return the prefill, decode and GPU containers. Prefill is first, since it gets the first NUMA nodes."""
    resources = ContainerResources(
        calculate_cell_engine_cpus(service.cpus), (sizing.host.engines_gib + sizing.host.shared_memory_gib) / 2
    )
    holder = ContainerSpec(
        name="gpus",
        image=image,
        launcher=GpuReservation(),
        resources=ContainerResources(GPU_HOLDER_CPUS, GPU_HOLDER_MEMORY_GIB, size.gpu_count),
        ports={},
    )
    return [
        _create_engine_container("prefill", image, launch.prefill, PREFILL_HTTP, resources),
        replace(
            _create_engine_container("decode", image, launch.decode, DECODE_HTTP, resources),
            launcher=EngineCheckLauncher(TransportCheck(launch.decode, service.without_peer_access)),
            readiness=Probe(exec_=k8s.core.v1.ExecActionArgs(command=["test", "-e", READY_FILE]), period_seconds=5),
        ),
        holder,
    ]


def _create_engine_container(
    name: str, image: pulumi.Output[str], launcher: VllmServer, port: Port, resources: ContainerResources
) -> ContainerSpec:
    return ContainerSpec(
        name=name,
        image=image,
        launcher=EngineCheckLauncher(launcher),
        resources=resources,
        ports={name: port},
        startup=create_startup_probe(port),
        liveness=create_engine_liveness_probe(name, port, launcher.model),
        # The readiness of the pod is determined by the front, which sends a request to both engines.
        readiness=create_http_probe(port, "/health", period_s=5, failures=2),
        mounts=[create_model_cache_mount(), create_shared_memory_mount()],
        extra_environment=ALL_GPUS_ENVIRONMENT,
        pre_stop_s=ENGINE_PRE_STOP_S,
    )


def _create_sidecars(context: ClusterContext, launch: CellProcesses, *, nvme: bool) -> list[ContainerSpec]:
    lmcache, router = context.get_image_uri(Image.LMCACHE), context.get_image_uri(Image.PD_ROUTER)
    return [
        create_lmcache_sidecar("lmcache", lmcache, launch.lmcache_prefill, LMCACHE_HTTP, nvme=nvme),
        create_lmcache_sidecar("lmcache-decode", lmcache, launch.lmcache_decode, DECODE_LMCACHE_HTTP, nvme=nvme),
        _create_proxy_container(
            "pd-router",
            router,
            launch.pd_router,
            resources=ContainerResources(PD_ROUTER_CPUS, PD_ROUTER_MEMORY_GIB),
            ports={},
            readiness=_create_pd_router_probe(),
        ),
        _create_proxy_container(
            "front",
            router,
            EngineCheckLauncher(launch.front),
            resources=ContainerResources(FRONT_CPUS, FRONT_MEMORY_GIB),
            ports={"front": ENGINE_HTTP},
            readiness=create_engine_readiness_probe(
                "front", (PREFILL_HTTP, DECODE_HTTP), ENGINE_HTTP, launch.decode.model
            ),
        ),
    ]


def create_lmcache_sidecar(
    name: str, image: pulumi.Output[str], launcher: LmcacheServer, port: Port, *, nvme: bool
) -> ContainerSpec:
    """Return the sidecar that runs an LMCache server.

    Engines start once the server is ready, and stop before the server does. The container requests no GPUs but sees all
    of them, since the server opens the GPU memory of its engine.
    """
    return ContainerSpec(
        name=name,
        image=image,
        launcher=launcher,
        resources=ContainerResources(LMCACHE_CPUS, launcher.l1_gib + LMCACHE_PROCESS_MEMORY_GIB),
        ports={name: port},
        startup=create_http_probe(port, "/healthcheck", period_s=5, failures=120),
        liveness=create_http_probe(port, "/healthcheck", period_s=10, failures=6),
        mounts=[create_shared_memory_mount(), *([create_nvme_mount()] if nvme else [])],
        environment_sources={POD_ADDRESS_VARIABLE: create_pod_field_source("status.podIP")} if launcher.peers else None,
        is_sidecar=True,
    )


def _create_proxy_container(
    name: str,
    image: pulumi.Output[str],
    launcher: Launcher,
    *,
    resources: ContainerResources,
    ports: dict[str, Port],
    readiness: Probe,
) -> ContainerSpec:
    """Return a sidecar that forwards requests. The sidecar needs no startup probe, since engines start later."""
    return ContainerSpec(
        name=name,
        image=image,
        launcher=launcher,
        resources=resources,
        ports=ports,
        readiness=readiness,
        is_sidecar=True,
    )


def _create_pd_router_probe() -> Probe:
    """Return an exec probe for the P/D router, since the kubelet cannot reach its loopback address."""
    program = _PD_ROUTER_PROBE_TEMPLATE.format(port=PD_ROUTER_HTTP.number)
    return Probe(
        exec_=k8s.core.v1.ExecActionArgs(command=["python3", "-c", program]),
        period_seconds=10,
        timeout_seconds=5,
        failure_threshold=3,
    )
