"""Keys of items in the price APIs, which are usage types on AWS and meters on Azure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from voice_blueprint import catalog

REGION_PREFIX_PATTERN = r"^([A-Z]+[0-9]*-|[a-z]+-[a-z]+-\d-)"
"""Prefix of usage types in most regions, such as ``USE1-`` or ``us-east-1-``."""


@dataclass(frozen=True)
class AwsMeter:
    """A rate in the AWS Price List.

    Attributes:
        service: Service code.
        usage: Usage type without the region's prefix.
        unit: Unit of the price book.
        scale: Number of AWS units per unit of the price book.
        filters: Required attributes of the product, in addition to the region.
        region_field: Attribute that contains the product's region.
    """

    service: str
    usage: str
    unit: str
    scale: float = 1
    filters: Mapping[str, str] = field(default_factory=dict)
    region_field: str = "regionCode"

    def matches(self, usage: str) -> bool:
        """Return True if a usage type matches, with or without a region's prefix."""
        return self.usage in (usage, re.sub(REGION_PREFIX_PATTERN, "", usage))


@dataclass(frozen=True)
class AzureMeter:
    """A meter in the Azure Retail Prices API.

    Attributes:
        where: Required field values of the meter's rows.
        measure: ``unitOfMeasure`` of the meter.
        unit: Unit of the price book.
        is_global: Whether the meter has one price for all regions, which the API returns under ``Global`` or without a
            region.
    """

    where: Mapping[str, str]
    measure: str
    unit: str
    is_global: bool = False


_LINUX_FILTERS = {"operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"}
_METER_TABLE = yaml.safe_load(Path(__file__).with_name("meters.yaml").read_text(encoding="utf-8"))
_AWS_METERS = {item: AwsMeter(**row) for item, row in _METER_TABLE["aws"].items()}
_AZURE_METERS = {item: AzureMeter(**row) for item, row in _METER_TABLE["azure"].items()}


def list_aws_items() -> tuple[str, ...]:
    """Return all AWS items that may have a meter."""
    return (*catalog.instance_types(), *catalog.cache_node_types(), *_AWS_METERS)


def find_first_paid_rate(terms: Iterable[Mapping[str, Any]]) -> float | None:
    """Return the USD rate of the first tier with a price above 0 among the terms of one SKU."""
    tiers = [tier for term in terms for tier in term["priceDimensions"].values()]
    rates = [
        float(tier["pricePerUnit"]["USD"])
        for tier in sorted(tiers, key=lambda tier: float(tier["beginRange"]))
        if "USD" in tier["pricePerUnit"]
    ]
    # A free tier is a first tier with price 0.
    return next((rate for rate in rates if rate > 0), None)


def find_aws_meter(item: str) -> AwsMeter | None:
    """Return the key of an item in the AWS Price List, or ``None`` for an unknown item."""
    if item in catalog.instance_types():
        return AwsMeter(
            "AmazonEC2", f"BoxUsage:{item}", "instance-hour", filters={"instanceType": item, **_LINUX_FILTERS}
        )
    if item in catalog.cache_node_types():
        filters = {"instanceType": item, "cacheEngine": "Valkey"}
        return AwsMeter("AmazonElastiCache", f"NodeUsage:{item}", "node-hour", filters=filters)
    return _AWS_METERS.get(item)


def find_azure_meter(item: str) -> AzureMeter | None:
    """Return the key of an item in the Azure Retail Prices API, or ``None`` for an unknown item."""
    if item in catalog.vm_sizes():
        return AzureMeter({"serviceName": "Virtual Machines", "armSkuName": item}, "1 Hour", "VM-hour")
    return _AZURE_METERS.get(item)
