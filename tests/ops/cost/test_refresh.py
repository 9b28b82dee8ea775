"""Fetched prices: selection among similar rates, first tiers, pagination, and unavailable APIs."""

import json
from pathlib import Path

import pytest

from tests.ops.cost.price_apis import Row, meter, offer, price_apis
from voice_blueprint import catalog
from voice_ops.cost.meters import find_aws_meter
from voice_ops.cost.offers import read_offer_prices
from voice_ops.cost.prices import Price, PriceBook, load_downloaded_prices, load_price_book, save_downloaded_prices
from voice_ops.cost.refresh import PriceApiError, fetch_aws_prices, fetch_azure_prices

LINUX = {
    "regionCode": "us-east-1",
    "instanceType": "c8g.12xlarge",
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
}
NODE = {"regionCode": "us-east-1", "instanceType": "cache.r7g.large", "cacheEngine": "Valkey"}
REGION = {"regionCode": "us-east-1"}
OFFERS = [
    offer("AmazonEC2", "USE1-UnusedBox:c8g.12xlarge", ("0", "9"), **LINUX),
    offer("AmazonEC2", "BoxUsage:c8g.12xlarge", ("0", "2.5"), **LINUX),
    offer("AmazonEC2", "BoxUsage:c8g.12xlarge", ("0", "7"), **{**LINUX, "operatingSystem": "Windows"}),
    offer("AmazonElastiCache", "USE1-SyncDurability-NodeUsage:cache.r7g.large", ("0", "8"), **NODE),
    offer("AmazonElastiCache", "USE1-NodeUsage:cache.r7g.large", ("0", "0.2"), **NODE),
    offer("AmazonCloudWatch", "CW:HighResAlarmMonitorUsage", ("0", "0.4"), **REGION),
    offer("AmazonCloudWatch", "CW:AlarmMonitorUsage", ("10", "0.11"), ("0", "0"), **REGION),
    offer("awskms", "us-east-1-KMS-Keys", ("0", "1.5"), **REGION),
    offer("AmazonApiGateway", "USE1-ApiGatewayRequest", ("0", "0.0000036"), ("333000000", "0.000001"), **REGION),
]
VM = {"serviceName": "Virtual Machines", "armSkuName": "Standard_D8ds_v5", "armRegionName": "westeurope"}
METERS = [
    meter("D8ds v5 Spot", 0.1, "1 Hour", **VM),
    meter("D8ds v5", 0.9, "1 Hour", **{**VM, "productName": "Virtual Machines Ddsv5 Series Windows"}),
    meter("D8ds v5", 0.55, "1 Hour", **VM),
    meter("D8ds v5", 4000.0, "1 Hour", **{**VM, "priceType": "Reservation"}),
    meter("Standard Gateway", 0.046, "1 Hour", serviceName="NAT Gateway", armRegionName="Global"),
    meter("Premium Registry Unit", 50.0, "1/Month", serviceName="Container Registry", armRegionName="westeurope"),
    meter("Private Zone", 0.1, "1", serviceName="Azure DNS", armRegionName="", tierMinimumUnits=25.0),
    meter("Private Zone", 0.5, "1", serviceName="Azure DNS", armRegionName="", tierMinimumUnits=0.0),
]


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


@pytest.mark.usefixtures("credentials")
def test_aws_prices_are_those_of_linux_on_demand_and_of_the_first_paid_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    items = ["c8g.12xlarge", "cache.r7g.large", "cloudwatch-alarm", "kms-key", "api-gateway-rest-requests", "nlb-hour"]
    with price_apis(OFFERS, []) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        found = fetch_aws_prices(items, "us-east-1")
    assert {price.item: pytest.approx(price.usd) for price in found.prices} == {
        "c8g.12xlarge": 2.5,
        "cache.r7g.large": 0.2,
        "cloudwatch-alarm": 0.11,
        "kms-key": 1.5,
        "api-gateway-rest-requests": 3.6,
    }
    assert found.unknown_items == ("nlb-hour",)
    assert {price.date for price in found.prices} == {"2026-11-20"}
    assert {price.region for price in found.prices} == {"us-east-1"}


def test_azure_prices_are_those_of_linux_on_demand_in_the_unit_we_count_in() -> None:
    items = ["Standard_D8ds_v5", "azure-nat-gateway-hour", "registry-premium-day", "private-dns-zone", "premium-files"]
    with price_apis([], METERS) as address:
        found = fetch_azure_prices(items, "westeurope", f"{address}/api/retail/prices")
    assert {(price.item, price.region): price.usd for price in found.prices} == {
        ("Standard_D8ds_v5", "westeurope"): 0.55,
        ("azure-nat-gateway-hour", "global"): 0.046,
        ("private-dns-zone", "global"): 0.5,
    }
    # A registry priced per month would be 30 times too expensive.
    assert set(found.unknown_items) == {"registry-premium-day", "premium-files"}


def test_fetched_prices_take_precedence_over_the_catalogue_and_are_saved(tmp_path: Path) -> None:
    file = tmp_path / ".voice/prices.json"
    first = Price("nlb-hour", 0.03, "NLB-hour", "us-east-1", "2026-11-20", "test")
    second = Price("c8g.12xlarge", 2.2, "instance-hour", "eu-west-3", "2026-11-21", "test")
    save_downloaded_prices(file, [first])
    save_downloaded_prices(file, [second])
    book = load_price_book(file)
    assert load_downloaded_prices(file) == [first, second]
    assert book.find_price("nlb-hour", "us-east-1") == first
    assert book.find_price("c8g.12xlarge", "eu-west-3", exact=True) == second
    untouched = book.find_price("c8g.12xlarge", "us-east-1", exact=True)
    assert untouched is not None
    assert untouched.usd == 1.91424


def test_a_corrupt_price_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "prices.json"
    file.write_text('[{"item": "x"}]')
    with pytest.raises(ValueError, match=r"delete it and fetch the prices again"):
        load_downloaded_prices(file)


@pytest.mark.usefixtures("credentials")
def test_an_api_that_is_unavailable_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(PriceApiError, match="pricing:GetProducts"):
        fetch_aws_prices(["nlb-hour"], "us-east-1")
    with pytest.raises(PriceApiError, match=r"127\.0\.0\.1:9"):
        fetch_azure_prices(["aks-standard-hour"], "westeurope", "http://127.0.0.1:9/prices")


def test_a_usage_type_may_only_have_a_region_prefix() -> None:
    meter = find_aws_meter("ecr-storage")
    assert meter is not None
    assert meter.matches("TimedStorage-ByteHrs")
    assert meter.matches("USE1-TimedStorage-ByteHrs")
    assert not meter.matches("USE1-Infrequent-TimedStorage-ByteHrs")
    assert not meter.matches("USE1-TimedStorage-ByteHrs-Archive")


def offer_file(folder: Path, code: str, *rows: Row) -> Path:
    """Write rows in the format of AWS's bulk price list: products first, then terms by SKU, including reserved ones."""
    products = {f"SKU{n}": {"sku": f"SKU{n}", "productFamily": "x", **row["product"]} for n, row in enumerate(rows)}
    for sku, product in products.items():
        product["sku"] = sku
        product["productFamily"] = product["attributes"].pop("productFamily", "x")
    terms = {
        f"SKU{n}": {f"SKU{n}.JRTC": {"offerTermCode": "JRTC", "sku": f"SKU{n}", **row["terms"]["OnDemand"]["term"]}}
        for n, row in enumerate(rows)
    }
    reserved = {sku: {f"{sku}.4NA7": {"offerTermCode": "4NA7", "sku": sku, "priceDimensions": {}}} for sku in terms}
    document = {
        "formatVersion": "v1.0",
        "offerCode": code,
        "publicationDate": "2026-11-21T08:00:00Z",
        "products": products,
        "terms": {"OnDemand": terms, "Reserved": reserved},
    }
    file = folder / f"{code}.json"
    file.write_text(json.dumps(document))
    return file


def test_an_offer_file_contains_the_prices_of_all_its_regions(tmp_path: Path) -> None:
    ireland, nat = {**LINUX, "regionCode": "eu-west-1"}, {"regionCode": "eu-west-1", "productFamily": "NAT Gateway"}
    file = offer_file(
        tmp_path,
        "AmazonEC2",
        offer("AmazonEC2", "BoxUsage:c8g.12xlarge", ("0", "1.91424"), **LINUX),
        offer("AmazonEC2", "EUW1-BoxUsage:c8g.12xlarge", ("0", "2.04672"), **ireland),
        offer("AmazonEC2", "EUW1-BoxUsage:c8g.12xlarge", ("0", "9"), **{**ireland, "operatingSystem": "Windows"}),
        offer("AmazonEC2", "EUW1-BoxUsage:m5.large", ("0", "1"), **{**ireland, "instanceType": "m5.large"}),
        offer("AmazonEC2", "EU-NatGateway-Hours", ("0", "0.048"), **nat),
        offer("AmazonEC2", "MOON1-BoxUsage:c8g.12xlarge", ("0", "1"), **{**LINUX, "regionCode": "moon-1"}),
    )
    found = {(price.item, price.region): price for price in read_offer_prices(file)}
    assert {key: price.usd for key, price in found.items()} == {
        ("c8g.12xlarge", "us-east-1"): 1.91424,
        ("c8g.12xlarge", "eu-west-1"): 2.04672,
        ("nat-gateway-hour", "eu-west-1"): 0.048,
    }
    assert found["nat-gateway-hour", "eu-west-1"].date == "2026-11-21"
    assert found["nat-gateway-hour", "eu-west-1"].source == "AWS price list, AmazonEC2 offer of 2026-11-21, SKU SKU4"


def test_traffic_is_priced_by_its_source(tmp_path: Path) -> None:
    from_here = {"fromRegionCode": "eu-west-1"}
    file = offer_file(
        tmp_path,
        "AWSDataTransfer",
        offer("AWSDataTransfer", "EU-DataTransfer-Regional-Bytes", ("0", "0.01"), **from_here),
        offer("AWSDataTransfer", "EU-DataTransfer-Out-Bytes", ("10240", "0.085"), ("0", "0.09"),
              **from_here, toLocation="External"),
        offer("AWSDataTransfer", "EU-USE1-AWS-Out-Bytes", ("0", "0.02"), **from_here, toLocation="US East"),
    )  # fmt: skip
    assert {(price.item, price.usd) for price in read_offer_prices(file)} == {
        ("zone-crossing-data", 0.02),
        ("internet-data", 0.09),
    }


# Rows in AWS's format: five lines about the file, column names, then a line for each rate of each product.
CSV_HEAD = """\
"FormatVersion","v1.0"
"Disclaimer","This pricing list is for informational purposes only."
"Publication Date","2026-11-21T18:02:11Z"
"Version","20261121180211"
"OfferCode","AmazonEC2"
"SKU","OfferTermCode","RateCode","TermType","PriceDescription","EffectiveDate","StartingRange","EndingRange","Unit",\
"PricePerUnit","Currency","LeaseContractLength","PurchaseOption","OfferingClass","Product Family","serviceCode",\
"Location","Location Type","Instance Type","Tenancy","Operating System","usageType","operation","CapacityStatus",\
"Pre Installed S/W","Region Code","Volume API Name"
"""


def csv_line(sku: str, term: str, usd: str, instance: str, usage: str, **other: str) -> str:
    system, family = other.get("system", "Linux"), other.get("family", "Compute Instance")
    compute = ("Shared", system, usage, "RunInstances", "Used", "NA") if instance else ("", "", usage, "", "", "")
    row = [sku, "JRTCKXETXF", f"{sku}.JRTCKXETXF.6YS6EN2CT7", term, f"${usd} per hour", "2026-11-01"]
    row += [other.get("begins", "0"), "Inf", "Hrs", usd, "USD", "", "", "", family, "AmazonEC2", "EU (Ireland)"]
    row += ["AWS Region", instance, *compute, "eu-west-1", other.get("volume", "")]
    return ",".join(f'"{value}"' for value in row) + "\n"


def test_the_csv_offer_file_has_the_same_prices(tmp_path: Path) -> None:
    rows = (
        csv_line("AAA", "Reserved", "0.1", "c8gn.2xlarge", "EU-BoxUsage:c8gn.2xlarge"),
        csv_line("AAA", "OnDemand", "0.5354", "c8gn.2xlarge", "EU-BoxUsage:c8gn.2xlarge"),
        csv_line("BBB", "OnDemand", "0.9034", "c8gn.2xlarge", "EU-BoxUsage:c8gn.2xlarge", system="Windows"),
        csv_line("CCC", "OnDemand", "0.048", "", "EU-NatGateway-Hours", family="NAT Gateway"),
        csv_line("DDD", "OnDemand", "0.088", "", "EU-EBS:VolumeUsage.gp3", family="Storage", volume="gp3"),
        csv_line("EEE", "OnDemand", "0.05", "", "EU-EBS:VolumeP-IOPS.gp3", begins="3000"),
        csv_line("EEE", "OnDemand", "0", "", "EU-EBS:VolumeP-IOPS.gp3"),
    )
    file = tmp_path / "index.csv"
    file.write_text(CSV_HEAD + "".join(rows), encoding="utf-8")
    found = read_offer_prices(file)
    assert {(price.item, price.region, price.usd) for price in found} == {
        ("c8gn.2xlarge", "eu-west-1", 0.5354),
        ("nat-gateway-hour", "eu-west-1", 0.048),
        ("ebs-gp3", "eu-west-1", 0.088),
        ("ebs-gp3-iops", "eu-west-1", 0.05),
    }
    assert found[0].source == "AWS price list, AmazonEC2 offer of 2026-11-21, SKU AAA"


@pytest.mark.parametrize("name", ["index.json", "index.csv"])
@pytest.mark.parametrize("text", ["", "[]", "{}", '{"offerCode": "AmazonEC2"}', "SKU\nAAA\n"])
def test_invalid_offer_files_are_reported(name: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(ValueError, match=r"is not an offer file of the AWS Price List"):
        read_offer_prices(file)
    with pytest.raises(ValueError, match="AmazonPolly contains no price of a resource that a deployment uses"):
        read_offer_prices(offer_file(tmp_path, "AmazonPolly", offer("AmazonPolly", "Chars", ("0", "1"), **REGION)))


@pytest.mark.parametrize("item", [*catalog.instance_types(), *catalog.cache_node_types(), *catalog.vm_sizes()])
def test_every_rentable_resource_has_a_dated_price(item: str) -> None:
    nearest = load_price_book().find_nearest_prices(item, "ap-south-2")
    assert nearest
    for each in nearest:
        assert each.usd > 0
        assert each.date
        assert each.source


def test_a_region_without_a_price_uses_the_nearest_region() -> None:
    def price(region: str, usd: float) -> Price:
        return Price("g6.xlarge", usd, "instance-hour", region, "2026-11-20", "test")

    book = PriceBook(
        [price("eu-west-1", 1.1), price("eu-west-2", 1.2), price("eu-north-1", 0.9), price("us-east-1", 0.8)]
    )
    assert [each.region for each in book.find_nearest_prices("g6.xlarge", "eu-west-3")] == ["eu-west-1", "eu-west-2"]
    assert [each.region for each in book.find_nearest_prices("g6.xlarge", "eu-south-1")] == [
        "eu-west-1",
        "eu-west-2",
        "eu-north-1",
    ]
    assert len(book.find_nearest_prices("g6.xlarge", "sa-east-1")) == 4
    assert book.find_nearest_prices("p5.4xlarge", "eu-west-3") == ()
