"""Lines of a cost estimate, their sums, and omitted items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from voice_ops.cost.prices import Price

EXPECTED_UTILIZATION = 0.35
"""Position of the expected size between minimum and maximum if the designed day cannot be simulated. The mean of a
sinusoidal day is half of its peak, and a fleet uses about 70 % of its maximum at the peak."""


@dataclass(frozen=True)
class Amount:
    """A number in the low, the expected and the peak case."""

    low: float
    expected: float
    peak: float

    @classmethod
    def fixed(cls, number: float) -> Amount:
        """Return a number that is the same in all cases."""
        return cls(number, number, number)

    @classmethod
    def between(cls, low: float, peak: float, utilization: float) -> Amount:
        """Return the size of a scaled resource in each case.

        Args:
            utilization: Position of the expected size between ``low`` and ``peak``, 0 to 1.
        """
        return cls(low, low + (peak - low) * utilization, peak)

    @property
    def cases(self) -> tuple[float, float, float]:
        """The numbers for the low, the expected and the peak case."""
        return self.low, self.expected, self.peak

    def map(self, change: Callable[[float], float]) -> Amount:
        """Return the amount with a function applied to each case."""
        return Amount(change(self.low), change(self.expected), change(self.peak))

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.low + other.low, self.expected + other.expected, self.peak + other.peak)

    def __sub__(self, other: Amount) -> Amount:
        return self + other.map(lambda number: -number)

    def __mul__(self, factor: float) -> Amount:
        return self.map(lambda number: number * factor)


@dataclass(frozen=True)
class ExpectedSizes:
    """The expected sizes of scaled resources.

    Attributes:
        default_utilization: Position between minimum and maximum for resources that ``sizes`` does not contain, 0 to 1.
        sizes: Mean of the designed day, by the name of an Auto Scaling group, a stack of tasks, or a node pool.
    """

    default_utilization: float
    sizes: Mapping[str, float] = field(default_factory=dict)

    def calculate_size(self, name: str, low: float, peak: float) -> Amount:
        """Return the size of a resource in the three cases."""
        if name in self.sizes:
            return Amount(low, self.sizes[name], max(peak, self.sizes[name]))
        return Amount.between(low, peak, self.default_utilization)


ZERO_AMOUNT = Amount.fixed(0)


def sum_amounts(amounts: Iterable[Amount]) -> Amount:
    """Return the sum for each case."""
    return sum(amounts, ZERO_AMOUNT)


@dataclass(frozen=True)
class ResourceUsage:
    """A priced item of one resource.

    Attributes:
        item: An item of the price book.
        amount: Number of units for the whole month: hosts, gateways, GB.
        is_exact: Whether only a price of the exact region is acceptable.
    """

    item: str
    amount: Amount
    is_exact: bool = False


@dataclass(frozen=True)
class CostLine:
    """A priced use of one resource.

    Attributes:
        resource: Logical id or name.
        kind: Resource type.
        usd: USD per month.
    """

    tier: str
    resource: str
    kind: str
    price: Price
    amount: Amount

    @property
    def usd(self) -> Amount:
        """USD per month."""
        return self.amount * self.price.usd_per_month


@dataclass(frozen=True)
class UnpricedItem:
    """A charged item that is not in the sum.

    Attributes:
        kind: Resource type.
        what: Item without a price.
        why: Reason.
    """

    kind: str
    what: str
    why: str


@dataclass(frozen=True)
class UnavailableHosts:
    """Hosts of a size without a price in the region, with the prices in the nearest regions.

    Attributes:
        item: The size.
        regions: Regions with a price.
        min_usd: USD per month at the lowest of these prices.
        most: USD per month at the highest of these prices.
    """

    item: str
    regions: tuple[str, ...]
    min_usd: Amount
    most: Amount


@dataclass(frozen=True)
class AudioUsage:
    """Audio hours per month, with the assumptions. The hours are ``None`` if the capacity of a host is unknown."""

    hours: Amount | None
    assumptions: str

    def calculate_usd_per_hour(self, usd: Amount) -> Amount | None:
        """Return USD per audio hour, which is 0 without audio, and ``None`` if the hours are unknown."""
        if self.hours is None:
            return None
        pairs = zip(usd.cases, self.hours.cases, strict=True)
        return Amount(*(cost / hours if hours else 0.0 for cost, hours in pairs))


@dataclass(frozen=True)
class ConversationUsage:
    """Conversation minutes per month, and the costs that only conversations cause.

    All other costs are shared with calls.

    Attributes:
        own_share_by_name: Share of conversations in the cost of a tier or resource, by its name.
        assumptions: Assumptions about minutes and shares.
    """

    minutes: Amount
    own_share_by_name: Mapping[str, float]
    assumptions: str


@dataclass(frozen=True)
class Estimate:
    """The cost of one cloud's section of a deployment.

    Attributes:
        lines: Priced lines.
        unpriced_items: Items without a price, without duplicates.
        free: Types that are not charged separately.
        unavailable_hosts: Hosts without a price. If there are any, the sum is a lower bound.
    """

    cloud: str
    region: str
    audio: AudioUsage
    lines: tuple[CostLine, ...] = ()
    unpriced_items: tuple[UnpricedItem, ...] = ()
    free: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unavailable_hosts: tuple[UnavailableHosts, ...] = ()
    conversations: ConversationUsage | None = None

    @property
    def usd_per_conversation_minute(self) -> Amount | None:
        """Cost per conversation minute, or ``None`` without agents.

        The cost consists of the costs that only conversations cause, and of the shared cost of a call minute.
        """
        usage, hours = self.conversations, self.audio.hours
        if usage is None or hours is None:
            return None
        own_total = sum_amounts(
            line.usd * usage.own_share_by_name.get(line.tier, usage.own_share_by_name.get(line.resource, 0.0))
            for line in self.lines
        )
        cases = zip(own_total.cases, self.usd.cases, usage.minutes.cases, hours.cases, strict=True)
        return Amount(
            *(
                own_usd_case / minutes + (usd - own_usd_case) / (60 * audio_hours)
                for own_usd_case, usd, minutes, audio_hours in cases
            )
        )

    @property
    def usd(self) -> Amount:
        """USD per month."""
        return sum_amounts(line.usd for line in self.lines)

    def calculate_usd_by_tier(self) -> dict[str, Amount]:
        """Return USD per month by tier, in the order of the templates."""
        sums: dict[str, Amount] = {}
        for line in self.lines:
            sums[line.tier] = sums.get(line.tier, ZERO_AMOUNT) + line.usd
        return sums

    @property
    def prices_from_other_regions(self) -> dict[str, list[str]]:
        """Items for which a price from another region is used, by the name of that region."""
        regions: dict[str, list[str]] = {}
        for line in self.lines:
            if line.price.region not in (self.region, "global"):
                items = regions.setdefault(line.price.region, [])
                if line.price.item not in items:
                    items.append(line.price.item)
        return regions
