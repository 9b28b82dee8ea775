"""Lines of a cost estimate, their sums, and what is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ops.cost.prices import Price

EXPECTED_UTILISATION = 0.35
"""Place of the expected size between the smallest and the largest. A sinusoidal day has half its peak on average, and a
fleet has about 70 % of its maximum in use at the peak."""


@dataclass(frozen=True)
class Amount:
    """A number in the three cases."""

    low: float
    expected: float
    peak: float

    @classmethod
    def fixed(cls, number: float) -> Amount:
        """Return a number that does not depend on the case."""
        return cls(number, number, number)

    @classmethod
    def between(cls, low: float, peak: float, utilisation: float) -> Amount:
        """Return a size that scaling moves; ``utilisation`` places the expected one."""
        return cls(low, low + (peak - low) * utilisation, peak)

    @property
    def cases(self) -> tuple[float, float, float]:
        """Low, expected and peak."""
        return self.low, self.expected, self.peak

    def map(self, change: Callable[[float], float]) -> Amount:
        """Return the amount with each case changed."""
        return Amount(change(self.low), change(self.expected), change(self.peak))

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.low + other.low, self.expected + other.expected, self.peak + other.peak)

    def __sub__(self, other: Amount) -> Amount:
        return self + other.map(lambda number: -number)

    def __mul__(self, factor: float) -> Amount:
        return self.map(lambda number: number * factor)


NOTHING = Amount.fixed(0)


def total(amounts: Iterable[Amount]) -> Amount:
    """Return the sum, case by case."""
    return sum(amounts, NOTHING)


@dataclass(frozen=True)
class Use:
    """What one resource rents.

    Attributes:
        item: An item of the price book.
        amount: How many units run all month: hosts, gateways, GB.
        exact: Whether the price of another region must not stand in.
    """

    item: str
    amount: Amount
    exact: bool = False


@dataclass(frozen=True)
class Line:
    """One priced use of one resource.

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
class Unpriced:
    """Something that costs money and is not in the sum.

    Attributes:
        kind: Resource type.
        what: What is not priced.
        why: Why not.
    """

    kind: str
    what: str
    why: str


@dataclass(frozen=True)
class Elsewhere:
    """Hosts of a size that has no price in its region, at what the nearest regions ask that have one.

    Attributes:
        item: The size.
        regions: Where it has a price.
        least: USD per month at the lowest of those prices.
        most: USD per month at the highest.
    """

    item: str
    regions: tuple[str, ...]
    least: Amount
    most: Amount


@dataclass(frozen=True)
class Audio:
    """Audio hours in a month, and how they were assumed; ``None`` hours where nothing says what a host carries."""

    hours: Amount | None
    assumed: str

    def usd_per_hour(self, usd: Amount) -> Amount | None:
        """Return USD per audio hour, 0 where no audio is carried."""
        if self.hours is None:
            return None
        pairs = zip(usd.cases, self.hours.cases, strict=True)
        return Amount(*(cost / hours if hours else 0.0 for cost, hours in pairs))


@dataclass(frozen=True)
class Conversations:
    """Conversation minutes in a month, and which costs are theirs alone; the others are every call's alike.

    Attributes:
        own: Share that conversations have of the cost of a tier or of a resource, by its name.
        assumed: How minutes and shares were assumed.
    """

    minutes: Amount
    own: Mapping[str, float]
    assumed: str


@dataclass(frozen=True)
class Estimate:
    """The cost of one cloud's half of a deployment.

    Attributes:
        lines: What is priced.
        unpriced: What is not, without repetition.
        free: Types that cost nothing by themselves.
        hosts: Hosts without a price: while there are any, the sum is what the deployment costs at least.
    """

    cloud: str
    region: str
    audio: Audio
    lines: tuple[Line, ...] = ()
    unpriced: tuple[Unpriced, ...] = ()
    free: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    hosts: tuple[Elsewhere, ...] = ()
    conversations: Conversations | None = None

    @property
    def usd_per_conversation_minute(self) -> Amount | None:
        """What a minute costs: conversations' own part, and a call's; ``None`` where there are none."""
        held, hours = self.conversations, self.audio.hours
        if held is None or hours is None:
            return None
        own = total(line.usd * held.own.get(line.tier, held.own.get(line.resource, 0.0)) for line in self.lines)
        cases = zip(own.cases, self.usd.cases, held.minutes.cases, hours.cases, strict=True)
        return Amount(*(theirs / minutes + (usd - theirs) / (60 * heard) for theirs, usd, minutes, heard in cases))

    @property
    def usd(self) -> Amount:
        """USD per month."""
        return total(line.usd for line in self.lines)

    def by_tier(self) -> dict[str, Amount]:
        """Return USD per month by tier, in the order of the templates."""
        sums: dict[str, Amount] = {}
        for line in self.lines:
            sums[line.tier] = sums.get(line.tier, NOTHING) + line.usd
        return sums

    @property
    def borrowed(self) -> dict[str, list[str]]:
        """Items priced as in another region, by that region."""
        regions: dict[str, list[str]] = {}
        for line in self.lines:
            if line.price.region not in (self.region, "global"):
                items = regions.setdefault(line.price.region, [])
                if line.price.item not in items:
                    items.append(line.price.item)
        return regions
