"""Prices from offer files of AWS's bulk price list. Anybody may download them: no account is asked."""

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from blueprint import catalog
from ops.cost.meters import REGION_PREFIX, AwsMeter, aws_items, aws_meter, first_paid_rate
from ops.cost.prices import Price

Row = dict[str, Any]


def read_offer(file: Path) -> list[Price]:
    """Return the price of every item of the catalogue in every region that an offer file (``index.json``) has.

    Raises:
        ValueError: It is no such file, or has nothing that is rented here.
    """
    known: dict[str, list[tuple[str, AwsMeter]]] = defaultdict(list)
    for item in aws_items():
        if meter := aws_meter(item):
            known[meter.usage].append((item, meter))
    wanted: dict[str, tuple[str, AwsMeter, str]] = {}

    def keep(row: Row) -> Row | None:
        """Drop whatever is not rented while it is read: the file of EC2 has millions of rows, products first."""
        if "sku" in row and "attributes" in row:
            if found := _item(row, known):
                wanted[row["sku"]] = found
            return None
        return None if "offerTermCode" in row and row["sku"] not in wanted else row

    try:
        with file.open(encoding="utf-8") as text:
            offer = json.load(text, object_hook=keep)
        code, date, terms = offer["offerCode"], offer["publicationDate"][:10], offer["terms"].get("OnDemand", {})
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file}: is no offer file of AWS's price list (index.json): {error}") from None
    prices = []
    for sku, (item, meter, region) in wanted.items():
        usd = first_paid_rate(terms.get(sku, {}).values())
        if usd is not None:
            source = f"AWS price list, {code} offer of {date}, SKU {sku}"
            prices.append(Price(item, usd * meter.scale, meter.unit, region, date, source))
    if not prices:
        raise ValueError(f"{file}: {code} has no price of anything that is rented here")
    return prices


def _item(product: Row, known: dict[str, list[tuple[str, AwsMeter]]]) -> tuple[str, AwsMeter, str] | None:
    fields = {"productFamily": product.get("productFamily"), **product["attributes"]}
    usage = fields.get("usagetype", "")
    for name in {usage, re.sub(REGION_PREFIX, "", usage)}:
        for item, meter in known.get(name, ()):
            region = fields.get(meter.region_field)
            fits = all(fields.get(field) == value for field, value in meter.filters.items())
            if fits and fields.get("servicecode") == meter.service and region in catalog.regions():
                return item, meter, str(region)
    return None
