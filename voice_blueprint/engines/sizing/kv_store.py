"""Capacity of LMCache outside the GPUs of a service: sessions per level, and the time to reload a session."""

from collections.abc import Iterator
from dataclasses import dataclass

from voice_blueprint import catalog
from voice_blueprint.engines.sizing.memory import calculate_session_bytes
from voice_blueprint.engines.sizing.service import PoolSizing
from voice_blueprint.file.model.azure import AggregatedService, LmcachePool, PrefillDecodeCell
from voice_blueprint.file.model.serving import KvCacheType

MAX_DISK_GB_PER_S = 7.88
"""Maximum read rate of an NVMe disk, GB/s: four lanes of PCIe 4.0 (16 GT/s, 128b/130b). Azure publishes no rate."""


@dataclass(frozen=True)
class KvLevel:
    """A level in one replica's store.

    Attributes:
        gib: Size of the level.
        sessions: Number of sessions of the configured length that fit.
        session_gb: KV cache of one such session, GB.
        gb_per_s: Peak rate from the level to the engine's GPUs: an upper bound.
    """

    name: str
    gib: int
    sessions: int
    session_gb: float
    gb_per_s: float

    @property
    def read_ms(self) -> float:
        """Minimum time to read one session into the GPUs, ms."""
        return 1000 * self.session_gb / self.gb_per_s


def iter_kv_levels(service: PrefillDecodeCell | AggregatedService, pool: PoolSizing) -> Iterator[KvLevel]:
    """Yield the levels of a replica's LMCache outside the GPUs. A service without LMCache has no levels."""
    if not isinstance(service.lmcache, LmcachePool):
        return
    size = catalog.vm_sizes()[pool.vm_size]
    kv_cache_type = service.kv_cache_type if isinstance(service, AggregatedService) else KvCacheType.AUTO
    session_size = calculate_session_bytes(catalog.models()[service.model], service.load.session_tokens, kv_cache_type)
    links = pool.prefill.tensor_parallel if pool.prefill else pool.gpus_per_replica
    host_gb_per_s = links * catalog.gpus()[pool.engine.gpu].pcie_gb_per_s
    levels = [("host memory", service.lmcache.l1_gib, host_gb_per_s)]
    if service.lmcache.l2_nvme_gib:
        levels.append(("NVMe", service.lmcache.l2_nvme_gib, min(host_gb_per_s, size.nvme_disks * MAX_DISK_GB_PER_S)))
    for name, gib, gb_per_s in levels:
        yield KvLevel(name, gib, gib * 2**30 // session_size, session_size / 1e9, gb_per_s)
