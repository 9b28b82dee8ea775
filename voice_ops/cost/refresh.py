"""Current list prices from the clouds' price APIs."""

import json
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from botocore.paginate import Paginator

from voice_ops.aws.refusals import AWS_ERRORS
from voice_ops.aws.session import create_session
from voice_ops.cost.meters import AwsMeter, AzureMeter, find_aws_meter, find_azure_meter, find_first_paid_rate
from voice_ops.cost.prices import GLOBAL_PRICE_REGION, Price
from voice_ops.timeouts import READ_TIMEOUT_S

AZURE_PRICES_URL = "https://prices.azure.com/api/retail/prices"
AWS_PRICES_REGION = "us-east-1"
"""Region of the Price List API's endpoint. The API serves all regions, but has endpoints in only a few."""

_EXCLUDED_METERS = ("Windows", "Spot", "Low Priority", "Cloud Services", "CloudServices")


class PriceApiError(Exception):
    """A price API failed. The message contains the API, the reason and the remedy."""


@dataclass(frozen=True)
class PriceRefresh:
    """Prices from the price APIs.

    Attributes:
        prices: Prices that were found.
        unknown_items: Items without a result.
    """

    prices: tuple[Price, ...]
    unknown_items: tuple[str, ...]


def fetch_aws_prices(items: Iterable[str], region: str) -> PriceRefresh:
    """Query the AWS Price List for items in a region. Requires ``pricing:GetProducts``.

    Raises:
        PriceApiError: The API is unreachable.
    """
    try:
        pages = create_session(AWS_PRICES_REGION).client("pricing").get_paginator("get_products")
        return _query_items(items, lambda item: _query_aws_price(pages, item, region))
    except AWS_ERRORS as error:
        raise PriceApiError(
            f"the AWS Price List API did not respond: {error}; it requires credentials that allow pricing:GetProducts"
        ) from None


def fetch_azure_prices(items: Iterable[str], region: str, endpoint: str = AZURE_PRICES_URL) -> PriceRefresh:
    """Query the Azure Retail Prices API for items in a region. Requires no credentials.

    Raises:
        PriceApiError: The API is unreachable, or its response is invalid.
    """
    try:
        return _query_items(items, lambda item: _query_azure_price(endpoint, item, region))
    except (OSError, ValueError, KeyError) as error:
        raise PriceApiError(f"{endpoint} did not respond: {error}; the prices of the catalogue are used") from None


def _query_items(items: Iterable[str], query: Callable[[str], Price | None]) -> PriceRefresh:
    results = {item: query(item) for item in sorted(items)}
    prices_found = tuple(price for price in results.values() if price is not None)
    return PriceRefresh(prices_found, tuple(item for item, price in results.items() if price is None))


def _query_aws_price(pages: "Paginator[Any]", item: str, region: str) -> Price | None:
    meter = find_aws_meter(item)
    if meter is None:
        return None
    fields = {meter.region_field: region, **meter.filters}
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in fields.items()]
    for page in pages.paginate(ServiceCode=meter.service, Filters=filters):
        for text in page["PriceList"]:
            offer = json.loads(text)
            usd = _find_on_demand_rate(meter, offer)
            if usd is not None:
                source = f"AWS Price List API, SKU {offer['product']['sku']}"
                return Price(item, usd * meter.scale, meter.unit, region, offer["publicationDate"][:10], source)
    return None


def _find_on_demand_rate(meter: AwsMeter, offer: dict[str, Any]) -> float | None:
    """Return the On-Demand rate of the first paid tier, or ``None`` if the offer has another usage type."""
    if not meter.matches(offer["product"]["attributes"].get("usagetype", "")):
        return None
    return find_first_paid_rate(offer["terms"].get("OnDemand", {}).values())


def _query_azure_price(endpoint: str, item: str, region: str) -> Price | None:
    meter = find_azure_meter(item)
    if meter is None:
        return None
    today = datetime.now(UTC).date().isoformat()
    rows = [row for row in _query_azure_rows(endpoint, meter, region) if _matches_meter(meter, row)]
    if not rows:
        return None
    row = min(rows, key=lambda row: row["tierMinimumUnits"])
    source = f"Azure Retail Prices API, meter {row['meterName']} ({row['meterId']})"
    return Price(
        item, float(row["retailPrice"]), meter.unit, GLOBAL_PRICE_REGION if meter.is_global else region, today, source
    )


def _matches_meter(meter: AzureMeter, row: dict[str, Any]) -> bool:
    name = f"{row['productName']} {row['skuName']} {row['meterName']}"
    return (
        row["retailPrice"] > 0
        and row["unitOfMeasure"] == meter.measure
        and not any(other in name for other in _EXCLUDED_METERS)
    )


def _query_azure_rows(endpoint: str, meter: AzureMeter, region: str) -> Iterator[dict[str, Any]]:
    query_filters = {**meter.where, "priceType": "Consumption"}
    if not meter.is_global:
        query_filters["armRegionName"] = region
    terms = " and ".join(f"{name} eq '{value}'" for name, value in query_filters.items())
    query = urllib.parse.urlencode({"api-version": "2023-01-01-preview", "$filter": terms})
    url: str | None = f"{endpoint}?{query}"
    while url:
        with urllib.request.urlopen(url, timeout=READ_TIMEOUT_S) as answer:  # noqa: S310  the scheme is a constant
            page = json.load(answer)
        yield from page["Items"]
        url = page["NextPageLink"]
