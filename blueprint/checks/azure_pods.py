"""Every kind of pod that a deployment puts on a GPU pool, for checks that hold for all of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from blueprint import catalog
from blueprint.catalog import Gpu, ModelCard, VmSize
from blueprint.checks.base import Violation
from blueprint.engines.sizing.result import DoesNotFitError
from blueprint.file.model.azure import (
    AggregatedService,
    Azure,
    AzureService,
    ChatService,
    GpuPool,
    LmcachePool,
    PrefillDecodeCell,
)
from blueprint.file.model.serving import KvCacheType, Quantization
from blueprint.file.source import Location

CELL_ENGINES = 2
"""A cell holds a prefill engine and a decode engine, each on half of the node's GPUs."""

_ADJUSTABLE = (AggregatedService, ChatService)
"""Services whose weights and KV cache may be FP8."""


@dataclass(frozen=True)
class ServicePod:
    """The pods of one service on one pool.

    Attributes:
        location: The service in the file.
        pool_at: Where the service names the pool.
        gpus: GPUs of one pod; 0 on a size without any.
        tensor_parallel: GPUs of one engine.
    """

    service: AzureService
    location: Location
    pool: GpuPool
    pool_at: Location
    size: VmSize
    model: ModelCard
    gpus: int
    tensor_parallel: int

    @property
    def is_cell(self) -> bool:
        """Whether a pod is a whole prefill/decode cell."""
        return isinstance(self.service, PrefillDecodeCell)

    @property
    def gpu(self) -> Gpu | None:
        """The GPU model that the engines run on."""
        return catalog.gpus()[self.size.gpu] if self.size.gpu else None

    @property
    def per_node(self) -> int:
        """Pods that one node has GPUs for."""
        return self.size.gpu_count // self.gpus if self.gpus else 0

    @property
    def lmcache(self) -> LmcachePool | None:
        """Its pool for KV cache that leaves the GPUs."""
        return self.service.lmcache if isinstance(self.service, PrefillDecodeCell | AggregatedService) else None

    @property
    def kv_cache_type(self) -> KvCacheType:
        """How its engines keep keys and values."""
        return self.service.kv_cache_type if isinstance(self.service, _ADJUSTABLE) else KvCacheType.AUTO

    @property
    def quantization(self) -> Quantization:
        """How its engines keep weights."""
        return self.service.quantization if isinstance(self.service, _ADJUSTABLE) else Quantization.NONE


def service_pods(azure: Azure) -> Iterator[ServicePod]:
    """Yield the pods of every service on every pool that it names, in file order."""
    pools = {pool.name: pool for pool in azure.pools}
    for index, service in enumerate(azure.services):
        at: Location = ("azure", "services", index)
        if isinstance(service, ChatService):
            places = [(name, (*at, "pools", number)) for number, name in enumerate(service.pools)]
        else:
            places = [(service.pool, (*at, "pool"))]
        for name, pool_at in places:
            size = catalog.vm_sizes()[pools[name].vm_size]
            gpus, tensor_parallel = _shape(service, size)
            yield ServicePod(
                service=service,
                location=at,
                pool=pools[name],
                pool_at=pool_at,
                size=size,
                model=catalog.models()[service.model],
                gpus=gpus,
                tensor_parallel=tensor_parallel,
            )


def _shape(service: AzureService, size: VmSize) -> tuple[int, int]:
    """Return the GPUs of a pod and of one of its engines."""
    match service:
        case PrefillDecodeCell():
            return size.gpu_count, size.gpu_count // CELL_ENGINES
        case AggregatedService():
            return service.tensor_parallel, service.tensor_parallel
        case _:
            return 1, 1


def refused(at: Location, pod: ServicePod, check: Callable[[ServicePod], None]) -> Iterator[Violation]:
    """Yield sizing's refusal of a pod, in sizing's words; nothing where it fits."""
    try:
        check(pod)
    except DoesNotFitError as error:
        yield Violation(at, f"{pod.service.name} on pool {pod.pool.name}: {error.arithmetic}", error.remedy)
