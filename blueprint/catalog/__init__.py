"""What the clouds sell: typed rows with their sources, read from the YAML files beside this module."""

import functools
import json
from importlib import resources
from typing import Literal, TypeVar

import yaml
from pydantic import Field

from blueprint.model.base import Model


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
    """The list price of one AWS service in one region."""

    item: str
    unit: str
    usd: float = Field(gt=0)
    """USD for one unit, in the first tier where use is priced in tiers."""
    region: str
    date: str
    """Day, or month where the source has no day, on which the price was read."""
    source: str


Row = TypeVar("Row", InstanceType, CacheNodeType, Quota, Region, ServicePrice)


def _rows(file: str, row: type[Row]) -> tuple[Row, ...]:
    text = resources.files(__package__).joinpath(file).read_text(encoding="utf-8")
    # JSON-mode validation accepts YAML's lists for tuples while staying strict about scalars.
    return tuple(row.model_validate_json(json.dumps(item)) for item in yaml.load(text, Loader=yaml.CSafeLoader))


@functools.cache
def instance_types() -> dict[str, InstanceType]:
    """Every EC2 instance type that a fleet can run on, by name."""
    return {row.name: row for row in _rows("instance_types.yaml", InstanceType)}


@functools.cache
def cache_node_types() -> dict[str, CacheNodeType]:
    """Every ElastiCache node type for the state store, by name."""
    return {row.name: row for row in _rows("cache_node_types.yaml", CacheNodeType)}


@functools.cache
def quotas() -> dict[str, Quota]:
    """EC2 vCPU quotas by their Service Quotas code."""
    return {row.code: row for row in _rows("quotas.yaml", Quota)}


@functools.cache
def regions() -> dict[str, Region]:
    """AWS regions by name."""
    return {row.name: row for row in _rows("regions.yaml", Region)}


@functools.cache
def service_prices() -> dict[str, ServicePrice]:
    """List prices of AWS services other than instances and cache nodes, by item."""
    return {row.item: row for row in _rows("prices.yaml", ServicePrice)}
