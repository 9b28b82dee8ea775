"""What Azure sells: rows of ``vm_sizes.yaml``."""

from pydantic import Field

from blueprint.base import Model


class NumaNode(Model):
    """One NUMA node of a VM: the CPUs and GPUs that share a memory controller."""

    vcpus: int = Field(gt=0)
    gpus: tuple[int, ...] = ()
    """Indices of its GPUs, as ``nvidia-smi`` counts them."""


class VmSize(Model):
    """One Azure VM size."""

    name: str
    vcpus: int
    memory_gib: float
    gpu: str | None = None
    """Name of its GPU model in ``gpus.yaml``."""
    gpu_count: int = 0
    numa_nodes: tuple[NumaNode, ...] = ()
    """Empty where no source gives them."""
    nvlink_domains: tuple[tuple[int, ...], ...] = ()
    """Groups of GPUs that NVLink joins; a GPU outside every group has PCIe only."""
    topology_note: str | None = None
    """How sure the two fields above are."""
    nvme_gib: int = 0
    """All local NVMe disks together, GiB; 0 is none."""
    nvme_disks: int = 0
    network_gbps: float
    rdma: bool
    """Whether InfiniBand is there; without it, traffic between nodes is TCP."""
    quota_family: str
    """Compute quota that its vCPUs count against; compare without regard to case."""
    capacity_reservation: bool
    """Whether on-demand capacity reservations take the size."""
    spot: bool
    usd_per_hour: dict[str, float]
    """Pay-as-you-go Linux list price by region: every region that lists the size."""
    price_date: str
    unpriced_regions: tuple[str, ...] = ()
    """Regions that a released deployment file asks for, and no price list names."""
    source: str

    @property
    def regions(self) -> tuple[str, ...]:
        """Regions that may have the size."""
        return *self.usd_per_hour, *self.unpriced_regions

    def nvlink_domain_of(self, gpu: int) -> tuple[int, ...]:
        """Return the GPUs that share NVLink with one GPU, itself included."""
        return next((domain for domain in self.nvlink_domains if gpu in domain), (gpu,))
