"""Prices from offer files of AWS's price list bulk API, which require no account."""

import csv
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voice_blueprint import catalog
from voice_ops.cost.meters import REGION_PREFIX_PATTERN, AwsMeter, find_aws_meter, find_first_paid_rate, list_aws_items
from voice_ops.cost.prices import Price

Row = dict[str, Any]
MeterMatch = tuple[str, AwsMeter, str]
"""An item in the catalogue, the item's meter, and a region."""


def read_offer_prices(file: Path) -> list[Price]:
    """Return the price of every catalogue item in every region of an offer file.

    AWS publishes each offer as ``index.json``, which is read as a whole, and as ``index.csv``, which is read row by
    row.

    Raises:
        ValueError: The file is not an offer file, or contains no item of the catalogue.
    """
    try:
        code, date, rates = (_read_csv_offer if file.suffix == ".csv" else _read_json_offer)(file)
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(
            f"{file} is not an offer file of the AWS Price List (index.json or index.csv): {error}"
        ) from None
    prices = []
    for sku, ((item, meter, region), terms) in rates.items():
        usd = find_first_paid_rate(terms)
        if usd is not None:
            source = f"AWS price list, {code} offer of {date}, SKU {sku}"
            prices.append(Price(item, usd * meter.scale, meter.unit, region, date, source))
    if not prices:
        raise ValueError(f"{file}: {code} contains no price of a resource that a deployment uses")
    return prices


RatesBySku = dict[str, tuple[MeterMatch, list[Row]]]
"""Items in the catalogue and the terms of their rates, by SKU."""


def _read_json_offer(file: Path) -> tuple[str, str, RatesBySku]:
    matches_by_sku: dict[str, MeterMatch] = {}
    meters = _group_meters_by_usage()

    def drop_unneeded(row: Row) -> Row | None:
        """Drop rows that are not needed, since EC2's file has millions of rows. Products precede terms."""
        if "sku" in row and "attributes" in row:
            if match := _match_item({"productFamily": row.get("productFamily"), **row["attributes"]}, meters):
                matches_by_sku[row["sku"]] = match
            return None
        return None if "offerTermCode" in row and row["sku"] not in matches_by_sku else row

    with file.open(encoding="utf-8") as text:
        offer = json.load(text, object_hook=drop_unneeded)
    terms = offer["terms"].get("OnDemand", {})
    rates = {sku: (match, list(terms.get(sku, {}).values())) for sku, match in matches_by_sku.items()}
    return offer["offerCode"], offer["publicationDate"][:10], rates


def _read_csv_offer(file: Path) -> tuple[str, str, RatesBySku]:
    rates: RatesBySku = {}
    meters, head = _group_meters_by_usage(), {}
    with file.open(encoding="utf-8", newline="") as text:
        lines = csv.reader(text)
        # Names and values precede the column names.
        for line in lines:
            if line[0] == "SKU":
                break
            head[line[0]] = line[1]
        for values in lines:
            row = dict(zip(line, values, strict=True))
            if row["TermType"] == "OnDemand" and (match := _match_item(row, meters)):
                rate = {"beginRange": row["StartingRange"], "pricePerUnit": {row["Currency"]: row["PricePerUnit"]}}
                rates.setdefault(row["SKU"], (match, []))[1].append({"priceDimensions": {"rate": rate}})
    return head["OfferCode"], head["Publication Date"][:10], rates


def _group_meters_by_usage() -> Mapping[str, list[tuple[str, AwsMeter]]]:
    meters: dict[str, list[tuple[str, AwsMeter]]] = defaultdict(list)
    for item in list_aws_items():
        if meter := find_aws_meter(item):
            meters[meter.usage].append((item, meter))
    return meters


def _match_item(fields: Mapping[str, Any], known_meters: Mapping[str, list[tuple[str, AwsMeter]]]) -> MeterMatch | None:
    usage = fields.get("usagetype") or fields.get("usageType") or ""
    meters = [pair for name in {usage, re.sub(REGION_PREFIX_PATTERN, "", usage)} for pair in known_meters.get(name, ())]
    if not meters:
        return None
    # A column of the CSV file is named after the JSON file's attribute, in words: "Region Code".
    named = {_normalize_column_name(name): value for name, value in fields.items()}
    for item, meter in meters:
        region = named.get(_normalize_column_name(meter.region_field))
        is_match = all(named.get(_normalize_column_name(field)) == value for field, value in meter.filters.items())
        if is_match and named.get("servicecode") == meter.service and region in catalog.regions():
            return item, meter, str(region)
    return None


def _normalize_column_name(name: str) -> str:
    return re.sub("[^a-z]", "", name.lower())
