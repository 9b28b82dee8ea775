"""Derives the deleted and retained resources in a teardown from the templates."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from voice_blueprint.file.model.aws import Aws, CapacityBlock, CapacityReservation
from voice_ops.cost import aws
from voice_ops.cost.model import ExpectedSizes
from voice_ops.cost.prices import PriceBook

RETAINING_POLICIES = {"Retain", "RetainExceptOnCreate", "Snapshot"}
RESERVATION_KIND = "capacity reservation"
_STORAGE_ITEM_BY_TYPE = {
    "AWS::ECR::Repository": "ecr-storage",
    "AWS::Logs::LogGroup": "logs-stored",
    "AWS::S3::Bucket": "s3-standard",
}


@dataclass(frozen=True)
class RetainedResource:
    """A resource that remains after the stacks are deleted.

    Attributes:
        stack: Stack of the resource; empty for a resource outside of stacks.
        name: Logical id, or the id of a resource outside of stacks.
        kind: Resource type.
        why: Reason.
        usd: Price in USD per month, or in USD per GB and month if ``per_gb``; ``None`` if unknown.
        gb: Size; ``None`` if unknown.
    """

    stack: str
    name: str
    kind: str
    why: str
    usd: float | None
    per_gb: bool = False
    gb: float | None = None

    @property
    def usd_per_month(self) -> float | None:
        """Monthly cost, or ``None`` if it is unknown."""
        if not self.per_gb or self.usd is None:
            return self.usd
        return None if self.gb is None else self.usd * self.gb


@dataclass(frozen=True)
class TeardownPlan:
    """Resources that a teardown deletes and retains.

    Attributes:
        deleted: Number of resources by stack and type.
    """

    deleted: Mapping[str, Counter[str]]
    kept: tuple[RetainedResource, ...]

    @property
    def retained_kinds(self) -> set[str]:
        """Types of the retained resources."""
        return {each.kind.removeprefix("snapshot of ") for each in self.kept}

    @property
    def usd_per_month(self) -> float:
        """Monthly cost of the retained resources whose cost is known."""
        return sum(each.usd_per_month or 0 for each in self.kept)


ResourceSizes = Mapping[tuple[str, str], float]
"""GB by stack and logical id."""


def plan_teardown(
    templates: Mapping[str, Mapping[str, Any]], section: Aws, book: PriceBook, sizes: ResourceSizes | None = None
) -> TeardownPlan:
    """Return the resources that `cdk destroy` would delete and retain."""
    deleted: dict[str, Counter[str]] = {}
    retained = []
    for stack, template in templates.items():
        deleted[stack] = Counter()
        for name, resource in template["Resources"].items():
            policy = resource.get("DeletionPolicy", "Delete")
            if policy in RETAINING_POLICIES:
                entry = _create_retained_resource(stack, name, resource, book, section.region)
                retained.append(replace(entry, gb=(sizes or {}).get((stack, name))))
            if policy not in RETAINING_POLICIES or policy == "Snapshot":
                deleted[stack][resource["Type"]] += 1
    return TeardownPlan(deleted, (*retained, *_list_reservations(section)))


def _create_retained_resource(
    stack: str, name: str, resource: Mapping[str, Any], book: PriceBook, region: str
) -> RetainedResource:
    kind = resource["Type"]
    if resource["DeletionPolicy"] == "Snapshot":
        return RetainedResource(stack, name, f"snapshot of {kind}", "a final snapshot is taken", None, per_gb=True)
    reason = "its deletion policy"
    if kind in _STORAGE_ITEM_BY_TYPE:
        price = book.find_price(_STORAGE_ITEM_BY_TYPE[kind], region)
        return RetainedResource(stack, name, kind, reason, price.usd_per_month if price else None, per_gb=True)
    uses = (
        list(aws.PRICING_RULES[kind](aws.Templates({}, ExpectedSizes(0)), stack, resource["Properties"]))
        if kind in aws.PRICING_RULES
        else []
    )
    prices = [book.find_price(use.item, region) for use in uses]
    known_prices = [price.usd_per_month * use.amount.low for price, use in zip(prices, uses, strict=True) if price]
    return RetainedResource(stack, name, kind, reason, sum(known_prices) if len(known_prices) == len(uses) else None)


def _list_reservations(section: Aws) -> Iterator[RetainedResource]:
    for fleet in section.asr:
        if isinstance(fleet.purchase, CapacityReservation):
            why = f"used by fleet {fleet.name}; charged as On-Demand hosts until you cancel it"
            yield RetainedResource("", fleet.purchase.reservation_id, RESERVATION_KIND, why, None)
        if isinstance(fleet.purchase, CapacityBlock):
            why = f"used by fleet {fleet.name}; a Capacity Block is paid in advance"
            yield RetainedResource("", fleet.purchase.reservation_id, RESERVATION_KIND, why, 0)
