"""Price book with the list prices from the catalogue and with downloaded prices."""

import itertools
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from voice_blueprint import catalog

HOURS_PER_MONTH = 730
"""The convention of both clouds' calculators: 365 days of 24 hours, divided by twelve."""

DAYS_PER_MONTH = 365 / 12
GLOBAL_PRICE_REGION = "global"


@dataclass(frozen=True)
class Price:
    """Price of one unit of an item in one region.

    Attributes:
        item: An instance type, node type, VM size, or an item of ``prices.yaml``.
        usd: USD for one unit.
        unit: Unit of the item. A unit of time is a suffix, such as ``-hour``.
        date: Date on which the price was read.
    """

    item: str
    usd: float
    unit: str
    region: str
    date: str
    source: str

    @property
    def usd_per_month(self) -> float:
        """USD for one unit during a whole month."""
        period = self.unit.rpartition("-")[2]
        return self.usd * {"hour": HOURS_PER_MONTH, "day": DAYS_PER_MONTH}.get(period, 1)


class PriceBook:
    """Prices by item and region.

    Args:
        prices: Prices; later ones replace earlier ones.
    """

    def __init__(self, prices: Iterable[Price]) -> None:
        self._prices: dict[str, dict[str, Price]] = {}
        for price in prices:
            self._prices.setdefault(price.item, {})[price.region] = price

    def find_price(self, item: str, region: str, *, exact: bool = False) -> Price | None:
        """Return the price in a region. Unless ``exact`` is set, the fallback is another region's latest price."""
        regional_prices = self._prices.get(item, {})
        if region in regional_prices or GLOBAL_PRICE_REGION in regional_prices:
            return regional_prices.get(region) or regional_prices[GLOBAL_PRICE_REGION]
        return None if exact else max(regional_prices.values(), key=lambda price: price.date, default=None)

    def find_nearest_prices(self, item: str, region: str) -> tuple[Price, ...]:
        """Return the item's prices in the regions with the most similar names.

        For eu-west-1, these are the regions of eu-west, otherwise those of eu, otherwise all regions.
        """
        regional_prices = self._prices.get(item, {}).values()
        similarity = {price.region: _count_shared_segments(price.region, region) for price in regional_prices}
        return tuple(price for price in regional_prices if similarity[price.region] == max(similarity.values()))


def _count_shared_segments(region_name: str, other: str) -> int:
    """Return the number of leading parts that two region names share."""
    pairs = zip(region_name.split("-"), other.split("-"), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def load_price_book(downloads: Path | None = None) -> PriceBook:
    """Return a price book with the catalogue's prices. Prices in a file with downloads take precedence."""
    return PriceBook([*_load_catalogue_prices(), *(load_downloaded_prices(downloads) if downloads else ())])


def load_downloaded_prices(file: Path) -> list[Price]:
    """Read the downloaded prices. Without a file, the result is empty.

    Raises:
        ValueError: The file does not have the format of `save_downloaded_prices`.
    """
    if not file.exists():
        return []
    try:
        return [Price(**row) for row in json.loads(file.read_text(encoding="utf-8"))]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{file} is not a price list; delete it and fetch the prices again") from error


def save_downloaded_prices(file: Path, prices: Iterable[Price]) -> None:
    """Save downloaded prices, and keep earlier prices for other regions and items."""
    merged = {(price.item, price.region): price for price in [*load_downloaded_prices(file), *prices]}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps([asdict(price) for price in merged.values()], indent=1) + "\n", encoding="utf-8")


def _load_catalogue_prices() -> Iterable[Price]:
    hourly = (
        ("instance-hour", catalog.instance_types()),
        ("node-hour", catalog.cache_node_types()),
        ("VM-hour", catalog.vm_sizes()),
    )
    for unit, rows in hourly:
        for row in rows.values():
            for region, usd in row.usd_per_hour.items():
                yield Price(row.name, usd, unit, region, row.price_date or "", row.source)
    for service in catalog.service_prices().values():
        yield Price(service.item, service.usd, service.unit, service.region, service.date, service.source)
