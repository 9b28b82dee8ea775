"""Catalogue of cloud offerings: typed rows with sources, read from the YAML files in this folder."""

from typing import Literal

from pydantic import Field

from voice_blueprint.base import Model
from voice_blueprint.catalog.azure import VmSize
from voice_blueprint.catalog.inference import EngineVersion, Gpu, ModelCard, StreamCapacity
from voice_blueprint.catalog.reading import create_table_reader

__all__ = [
    "Accelerator",
    "CacheNodeType",
    "EngineVersion",
    "Gpu",
    "InstanceType",
    "Limit",
    "ModelCard",
    "Quota",
    "Region",
    "ServicePrice",
    "StreamCapacity",
    "VmSize",
    "cache_node_types",
    "engines",
    "gpus",
    "instance_types",
    "limits",
    "live_streams",
    "models",
    "quotas",
    "regions",
    "service_prices",
    "vm_sizes",
]


class Accelerator(Model):
    """The accelerators in one instance type."""

    kind: Literal["neuron", "gpu"]
    model: str
    count: int = Field(gt=0)
    memory_gib: float = Field(gt=0)
    """Memory of one accelerator, GiB."""


class InstanceType(Model):
    """An EC2 instance type."""

    name: str
    vcpus: int
    memory_gib: float
    architecture: Literal["arm64", "x86_64"]
    network_gbps: float
    """Sustained bandwidth of the instance, Gbit/s."""
    network_burst_gbps: float | None = None
    network_queues: int
    """Default number of receive/transmit queue pairs on a network interface."""
    network_queues_max: int
    """Maximum number of queue pairs with flexible queues (``EnaQueueCount``), if the type supports them."""
    ena_express: bool
    ena_express_note: str | None = None
    """Disagreement between sources, if any."""
    efa: bool
    instance_store_gb: int
    """Total capacity of local NVMe disks, GB, or 0."""
    instance_store_disks: int
    accelerator: Accelerator | None = None
    quota_code: str
    """Service Quotas code of the On-Demand vCPU quota for the type."""
    capacity_blocks: bool
    """Whether EC2 Capacity Blocks for ML support the type."""
    usd_per_hour: dict[str, float]
    """On-Demand Linux list price by region; empty if no price is known."""
    price_date: str | None = None
    """Date of the oldest of these prices; absent without prices."""
    regions: tuple[str, ...]
    source: str

    @property
    def compute_kind(self) -> Literal["cpu", "gpu", "neuron"]:
        """Compute for an engine on a host: one kind of accelerator, or CPU cores."""
        return self.accelerator.kind if self.accelerator else "cpu"


class CacheNodeType(Model):
    """An ElastiCache node type, running Valkey."""

    name: str
    vcpus: int
    memory_gib: float
    """Memory available to the engine (``maxmemory``), GiB."""
    usd_per_hour: dict[str, float]
    """On-Demand list price of a Valkey node by region; empty if no price is known."""
    price_date: str | None = None
    source: str


class VcpuQuota(Model):
    """An EC2 vCPU quota."""

    code: str
    name: str
    family: str
    source: str


class CloudLimit(Model):
    """A cloud limit that restricts the size of a deployment."""

    id: str
    cloud: Literal["aws", "azure"]
    name: str
    default: int = Field(gt=0)
    """Default for a new account or subscription."""
    adjustable: bool
    """Whether an increase can be requested."""
    is_strict: bool = True
    """Whether requests above the limit fail; otherwise they wait, or the calculated usage is only an upper bound."""
    of_account: bool = False
    """Whether the limit applies to all deployments in an account and region together; otherwise it applies to each
    deployment."""
    service: str | None = None
    """Code of the service in Service Quotas."""
    quota: str | None = None
    """Code of the quota in Service Quotas."""
    source: str


class Region(Model):
    """An AWS region that this product supports."""

    name: str
    ena_express_across_zones: bool
    source: str


class ServicePrice(Model):
    """The list price of one service in one region."""

    item: str
    cloud: Literal["aws", "azure"] = "aws"
    unit: str
    """Unit of ``usd``; a unit of time is a suffix, as in ``gateway-hour``."""
    usd: float = Field(gt=0)
    """USD per unit, in the first tier of tiered prices."""
    region: str
    """``global`` if the cloud has one price for all regions."""
    date: str
    """Day on which the price was read, or the month if the source contains no day."""
    source: str


instance_types = create_table_reader("instance_types.yaml", InstanceType)
"""Every EC2 instance type that a fleet can run on, by name."""
cache_node_types = create_table_reader("cache_node_types.yaml", CacheNodeType)
"""Every ElastiCache node type for the state store, by name."""
limits = create_table_reader("limits.yaml", CloudLimit, key="id")
"""Limits other than vCPU quotas, by id."""
quotas = create_table_reader("quotas.yaml", VcpuQuota, key="code")
"""EC2 vCPU quotas by their Service Quotas code."""
regions = create_table_reader("regions.yaml", Region)
"""AWS regions by name."""
service_prices = create_table_reader("prices.yaml", ServicePrice, key="item")
"""List prices of services other than instances, cache nodes and VMs, by item."""
gpus = create_table_reader("gpus.yaml", Gpu)
"""GPU models by name; ``Accelerator.model`` and ``VmSize.gpu`` refer to them."""
models = create_table_reader("models.yaml", ModelCard)
"""Models that an engine can serve, by name."""
live_streams = create_table_reader("streams.yaml", StreamCapacity)
"""Published measurements of live transcription, by name."""
engines = create_table_reader("engines.yaml", EngineVersion)
"""Pinned versions of engines and related tools, by name. No other file contains versions."""
vm_sizes = create_table_reader("vm_sizes.yaml", VmSize)
"""Azure VM sizes that a node pool can run on, by name."""
