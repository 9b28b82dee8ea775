"""Azure VM sizes: rows of ``vm_sizes.yaml``."""

from pydantic import Field

from voice_blueprint.base import Model


class NumaNode(Model):
    """A NUMA node of a VM: the CPUs and GPUs that share a memory controller."""

    vcpus: int = Field(gt=0)
    gpus: tuple[int, ...] = ()
    """Indices of its GPUs in the order of ``nvidia-smi``."""


class VmSize(Model):
    """An Azure VM size."""

    name: str
    vcpus: int
    memory_gib: float
    gpu: str | None = None
    """Name of its GPU model in ``gpus.yaml``."""
    gpu_count: int = 0
    numa_nodes: tuple[NumaNode, ...] = ()
    """Empty if no source lists them."""
    nvlink_domains: tuple[tuple[int, ...], ...] = ()
    """Groups of GPUs that NVLink connects; GPUs outside of all groups have PCIe only."""
    topology_note: str | None = None
    """Confidence in the two fields above."""
    nvme_gib: int = 0
    """Total capacity of local NVMe disks, GiB, or 0."""
    nvme_disks: int = 0
    network_gbps: float
    rdma: bool
    """Whether InfiniBand is available; without it, traffic between nodes is TCP."""
    quota_family: str
    """Compute quota that its vCPUs count against; comparisons ignore case."""
    capacity_reservation: bool
    """Whether on-demand capacity reservations support the size."""
    spot: bool
    usd_per_hour: dict[str, float]
    """Pay-as-you-go Linux list price by region, for every region that lists the size."""
    price_date: str
    unpriced_regions: tuple[str, ...] = ()
    """Regions that a released deployment file uses, but that no price list contains."""
    source: str

    @property
    def regions(self) -> tuple[str, ...]:
        """Regions that may offer the size."""
        return *self.usd_per_hour, *self.unpriced_regions

    def find_nvlink_domain(self, gpu: int) -> tuple[int, ...]:
        """Return the GPUs that share NVLink with a GPU, including itself."""
        return next((domain for domain in self.nvlink_domains if gpu in domain), (gpu,))
