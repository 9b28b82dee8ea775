"""What the clouds sell: typed rows with their sources, read from the YAML files beside this module."""

from typing import Literal

from pydantic import Field

from blueprint.base import Model
from blueprint.catalog.azure import VmSize
from blueprint.catalog.inference import EngineVersion, Gpu, LiveStreams, ModelCard
from blueprint.catalog.reading import table

__all__ = [
    "Accelerator",
    "CacheNodeType",
    "EngineVersion",
    "Gpu",
    "InstanceType",
    "LiveStreams",
    "ModelCard",
    "Quota",
    "Region",
    "ServicePrice",
    "VmSize",
    "cache_node_types",
    "engines",
    "gpus",
    "instance_types",
    "live_streams",
    "models",
    "quotas",
    "regions",
    "service_prices",
    "vm_sizes",
]


class Accelerator(Model):
    """The accelerators of one instance type."""

    kind: Literal["neuron", "gpu"]
    model: str
    count: int = Field(gt=0)
    memory_gib: float = Field(gt=0)
    """Memory of one accelerator, GiB."""


class InstanceType(Model):
    """One EC2 instance type."""

    name: str
    vcpus: int
    memory_gib: float
    architecture: Literal["arm64", "x86_64"]
    network_gbps: float
    """Sustained bandwidth of the instance, Gbit/s."""
    network_burst_gbps: float | None = None
    network_queues: int
    """Receive/transmit queue pairs that one network interface has by default."""
    network_queues_max: int
    """The same with flexible queues (``EnaQueueCount``) where the type offers them."""
    ena_express: bool
    ena_express_note: str | None = None
    """What is disputed between sources, if anything."""
    efa: bool
    instance_store_gb: int
    """All local NVMe disks together, GB; 0 is none."""
    instance_store_disks: int
    accelerator: Accelerator | None = None
    quota_code: str
    """Service Quotas code of the On-Demand vCPU quota that the type counts against."""
    capacity_blocks: bool
    """Whether EC2 Capacity Blocks for ML sell the type."""
    usd_per_hour: dict[str, float]
    """On-Demand Linux list price by region; empty where none is known."""
    price_date: str | None = None
    """Date of the oldest of these prices; absent where there is none."""
    regions: tuple[str, ...]
    source: str

    @property
    def computes_on(self) -> Literal["cpu", "gpu", "neuron"]:
        """What an engine has on such a host: accelerators of one kind, or the host's own cores."""
        return self.accelerator.kind if self.accelerator else "cpu"


class CacheNodeType(Model):
    """One ElastiCache node type, running Valkey."""

    name: str
    vcpus: int
    memory_gib: float
    """Memory that the engine may use (``maxmemory``), GiB."""
    usd_per_hour: dict[str, float]
    """On-Demand list price of a Valkey node by region; empty where none is known."""
    price_date: str | None = None
    source: str


class Quota(Model):
    """One EC2 vCPU quota."""

    code: str
    name: str
    family: str
    source: str


class Region(Model):
    """One AWS region, as far as this product deploys there."""

    name: str
    ena_express_across_zones: bool
    source: str


class ServicePrice(Model):
    """The list price of one service in one region."""

    item: str
    cloud: Literal["aws", "azure"] = "aws"
    unit: str
    """What ``usd`` buys; hours and days say so at the end, as in ``gateway-hour``."""
    usd: float = Field(gt=0)
    """USD for one unit, in the first tier where use is priced in tiers."""
    region: str
    """``global`` where the cloud has one price for all."""
    date: str
    """Day, or month where the source has no day, on which the price was read."""
    source: str


instance_types = table("instance_types.yaml", InstanceType)
"""Every EC2 instance type that a fleet can run on, by name."""
cache_node_types = table("cache_node_types.yaml", CacheNodeType)
"""Every ElastiCache node type for the state store, by name."""
quotas = table("quotas.yaml", Quota, key="code")
"""EC2 vCPU quotas by their Service Quotas code."""
regions = table("regions.yaml", Region)
"""AWS regions by name."""
service_prices = table("prices.yaml", ServicePrice, key="item")
"""List prices of services other than instances, cache nodes and VMs, by item."""
gpus = table("gpus.yaml", Gpu)
"""GPU models by name; ``Accelerator.model`` and ``VmSize.gpu`` refer to them."""
models = table("models.yaml", ModelCard)
"""Models that an engine can serve, by name."""
live_streams = table("streams.yaml", LiveStreams)
"""Published measurements of live transcription, by name."""
engines = table("engines.yaml", EngineVersion)
"""Pinned engines and the tools beside them, by name: the one place of their versions."""
vm_sizes = table("vm_sizes.yaml", VmSize)
"""Azure VM sizes that a node pool can run on, by name."""
