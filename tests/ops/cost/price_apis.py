"""Fakes of the two price APIs with the documented formats, filters and pages, and made-up prices."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Row = dict[str, Any]


def offer(service: str, usage: str, *rates: tuple[str, str], **attributes: str) -> Row:
    """Return a product of the AWS Price List; a rate is the start of its tier, and USD."""
    dimensions = {
        f"tier-{number}": {"beginRange": begin, "unit": "Hrs", "pricePerUnit": {"USD": usd}}
        for number, (begin, usd) in enumerate(rates)
    }
    return {
        "product": {"sku": f"SKU-{usage}", "attributes": {"servicecode": service, "usagetype": usage, **attributes}},
        "serviceCode": service,
        "terms": {"OnDemand": {"term": {"priceDimensions": dimensions}}},
        "publicationDate": "2026-11-20T10:00:00Z",
    }


def meter(name: str, usd: float, measure: str, **fields: Any) -> Row:  # noqa: ANN401  fields of any type
    """Return an item of the Azure Retail Prices API."""
    base = {"productName": "", "skuName": "", "priceType": "Consumption", "tierMinimumUnits": 0.0, "meterId": "id"}
    return {**base, "meterName": name, "retailPrice": usd, "unitOfMeasure": measure, **fields}


@contextmanager
def price_apis(offers: list[Row], meters: list[Row]) -> Iterator[str]:
    """Serve both APIs, one row per page; yield their address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.headers["X-Amz-Target"] == "AWSPriceListService.GetProducts"
            wanted = {each["Field"]: each["Value"] for each in asked["Filters"]}
            found = [
                row
                for row in offers
                if row["serviceCode"] == asked["ServiceCode"]
                and all(row["product"]["attributes"].get(name) == value for name, value in wanted.items())
            ]
            at = int(asked.get("NextToken", 0))
            page: Row = {"FormatVersion": "aws_v1", "PriceList": [json.dumps(row) for row in found[at : at + 1]]}
            self._answer(page | ({"NextToken": str(at + 1)} if at + 1 < len(found) else {}))

        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            wanted = dict(re.findall(r"(\w+) eq '([^']*)'", query["$filter"][0]))
            found = [row for row in meters if all(row.get(name) == value for name, value in wanted.items())]
            at = int(query.get("$skip", ["0"])[0])
            more = f"{self._own_url()}{self.path.split('&$skip')[0]}&$skip={at + 1}" if at + 1 < len(found) else None
            self._answer({"Items": found[at : at + 1], "NextPageLink": more, "Count": 1})

        def _own_url(self) -> str:
            return f"http://{self.headers['Host']}"

        def _answer(self, body: Row) -> None:
            text = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
