"""Where the price APIs keep each item: AWS by usage type, Azure by meter."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from blueprint import catalog

REGION_PREFIX = r"^([A-Z]+[0-9]*-|[a-z]+-[a-z]+-\d-)"
"""What stands before a usage type in most regions, such as ``USE1-`` or ``us-east-1-``."""


@dataclass(frozen=True)
class AwsMeter:
    """One rate of the AWS Price List.

    Attributes:
        service: Service code.
        usage: Usage type without the region's prefix.
        unit: Unit of the price book.
        scale: How many of AWS's units one of ours is.
        filters: Attributes that the product must have, beside its region.
        region_field: Attribute that names its region.
    """

    service: str
    usage: str
    unit: str
    scale: float = 1
    filters: Mapping[str, str] = field(default_factory=dict)
    region_field: str = "regionCode"

    def matches(self, usage: str) -> bool:
        """Whether a usage type is this one, with or without a region's prefix."""
        return self.usage in (usage, re.sub(REGION_PREFIX, "", usage))


@dataclass(frozen=True)
class AzureMeter:
    """One meter of the Azure Retail Prices API.

    Attributes:
        where: Field values that its rows have.
        measure: Its ``unitOfMeasure``.
        unit: Unit of the price book.
        everywhere: Whether it has one price for all regions, which the API keeps under ``Global`` or no region.
    """

    where: Mapping[str, str]
    measure: str
    unit: str
    everywhere: bool = False


_LINUX = {"operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"}
_NLB = {"productFamily": "Load Balancer-Network"}
_NAT = {"productFamily": "NAT Gateway"}
_FROM = "fromRegionCode"

_AWS: dict[str, AwsMeter] = {
    "api-gateway-rest-requests": AwsMeter("AmazonApiGateway", "ApiGatewayRequest", "million requests", scale=1e6),
    "cloudwatch-alarm": AwsMeter("AmazonCloudWatch", "CW:AlarmMonitorUsage", "metric-month"),
    "cloudwatch-custom-metric": AwsMeter("AmazonCloudWatch", "CW:MetricMonitorUsage", "metric-month"),
    "cloudwatch-high-resolution-alarm": AwsMeter("AmazonCloudWatch", "CW:HighResAlarmMonitorUsage", "alarm-month"),
    "cloudwatch-requests": AwsMeter("AmazonCloudWatch", "CW:Requests", "thousand requests", scale=1000),
    "ebs-gp3": AwsMeter("AmazonEC2", "EBS:VolumeUsage.gp3", "GB-month", filters={"volumeApiName": "gp3"}),
    "ebs-gp3-iops": AwsMeter("AmazonEC2", "EBS:VolumeP-IOPS.gp3", "IOPS-month"),
    "ebs-gp3-throughput": AwsMeter("AmazonEC2", "EBS:VolumeP-Throughput.gp3", "GiBps-month"),
    "ecr-storage": AwsMeter("AmazonECR", "TimedStorage-ByteHrs", "GB-month"),
    "fargate-arm-memory": AwsMeter("AmazonECS", "Fargate-ARM-GB-Hours", "GB-hour"),
    "fargate-arm-vcpu": AwsMeter("AmazonECS", "Fargate-ARM-vCPU-Hours:perCPU", "vCPU-hour"),
    "interface-endpoint-data": AwsMeter("AmazonVPC", "VpcEndpoint-Bytes", "GB"),
    "interface-endpoint-hour": AwsMeter("AmazonVPC", "VpcEndpoint-Hours", "endpoint-hour"),
    "internet-data": AwsMeter(
        "AWSDataTransfer", "DataTransfer-Out-Bytes", "GB", filters={"toLocation": "External"}, region_field=_FROM
    ),
    "kms-key": AwsMeter("awskms", "KMS-Keys", "key-month"),
    "logs-ingested": AwsMeter("AmazonCloudWatch", "DataProcessing-Bytes", "GB"),
    "logs-stored": AwsMeter("AmazonCloudWatch", "TimedStorage-ByteHrs", "GB-month"),
    "nat-gateway-data": AwsMeter("AmazonEC2", "NatGateway-Bytes", "GB", filters=_NAT),
    "nat-gateway-hour": AwsMeter("AmazonEC2", "NatGateway-Hours", "gateway-hour", filters=_NAT),
    "nlb-capacity-unit": AwsMeter("AWSELB", "LCUUsage", "NLCU-hour", filters=_NLB),
    "nlb-hour": AwsMeter("AWSELB", "LoadBalancerUsage", "NLB-hour", filters=_NLB),
    "public-ipv4-hour": AwsMeter("AmazonVPC", "PublicIPv4:InUseAddress", "address-hour"),
    "s3-standard": AwsMeter("AmazonS3", "TimedStorage-ByteHrs", "GB-month", filters={"volumeType": "Standard"}),
    "secret": AwsMeter("AWSSecretsManager", "AWSSecretsManager-Secrets", "secret-month"),
    "waf-rule": AwsMeter("awswaf", "RuleV2", "rule-month"),
    "waf-web-acl": AwsMeter("awswaf", "WebACLV2", "ACL-month"),
    # The side that sends pays, and the side that receives.
    "zone-crossing-data": AwsMeter("AWSDataTransfer", "DataTransfer-Regional-Bytes", "GB", scale=2, region_field=_FROM),
}

_DISKS = {"serviceName": "Storage", "productName": "Premium SSD Managed Disks"}
_NETWORK = {"serviceName": "Virtual Network"}

_AZURE: dict[str, AzureMeter] = {
    "aks-standard-hour": AzureMeter(
        {"serviceName": "Azure Kubernetes Service", "meterName": "Standard Uptime SLA"}, "1 Hour", "cluster-hour"
    ),
    "azure-nat-gateway-hour": AzureMeter(
        {"serviceName": "NAT Gateway", "meterName": "Standard Gateway"}, "1 Hour", "gateway-hour", everywhere=True
    ),
    "azure-public-ipv4-hour": AzureMeter(
        {**_NETWORK, "meterName": "Standard IPv4 Static Public IP"}, "1 Hour", "address-hour"
    ),
    "log-analytics-ingested": AzureMeter(
        {"serviceName": "Log Analytics", "meterName": "Analytics Logs Data Ingestion"}, "1 GB", "GB"
    ),
    **{
        f"os-disk-{tier}": AzureMeter({**_DISKS, "meterName": f"{tier.upper()} LRS Disk"}, "1/Month", "disk-month")
        for tier in ("p10", "p15", "p20", "p30", "p40")
    },
    "premium-files": AzureMeter(
        {"serviceName": "Storage", "productName": "Premium Files", "meterName": "Premium LRS Provisioned"},
        "1 GiB/Month",
        "GiB-month",
    ),
    "private-dns-zone": AzureMeter(
        {"serviceName": "Azure DNS", "meterName": "Private Zone"}, "1", "zone-month", everywhere=True
    ),
    "private-endpoint-hour": AzureMeter(
        {**_NETWORK, "meterName": "Standard Private Endpoint"}, "1 Hour", "endpoint-hour", everywhere=True
    ),
    "registry-premium-day": AzureMeter(
        {"serviceName": "Container Registry", "meterName": "Premium Registry Unit"}, "1/Day", "registry-day"
    ),
}


def aws_items() -> tuple[str, ...]:
    """Return every item that is rented of AWS and may have a meter."""
    return (*catalog.instance_types(), *catalog.cache_node_types(), *_AWS)


def first_paid_rate(terms: Iterable[Mapping[str, Any]]) -> float | None:
    """Return the USD of the first tier that costs something, of the terms of one SKU."""
    tiers = [tier for term in terms for tier in term["priceDimensions"].values()]
    rates = [
        float(tier["pricePerUnit"]["USD"])
        for tier in sorted(tiers, key=lambda tier: float(tier["beginRange"]))
        if "USD" in tier["pricePerUnit"]
    ]
    # The free tier is a first tier at 0.
    return next((rate for rate in rates if rate > 0), None)


def aws_meter(item: str) -> AwsMeter | None:
    """Return where an item stands in the AWS Price List; ``None`` where nobody has found out."""
    if item in catalog.instance_types():
        return AwsMeter("AmazonEC2", f"BoxUsage:{item}", "instance-hour", filters={"instanceType": item, **_LINUX})
    if item in catalog.cache_node_types():
        filters = {"instanceType": item, "cacheEngine": "Valkey"}
        return AwsMeter("AmazonElastiCache", f"NodeUsage:{item}", "node-hour", filters=filters)
    return _AWS.get(item)


def azure_meter(item: str) -> AzureMeter | None:
    """Return where an item stands in the Azure Retail Prices API; ``None`` where nobody has found out."""
    if item in catalog.vm_sizes():
        return AzureMeter({"serviceName": "Virtual Machines", "armSkuName": item}, "1 Hour", "VM-hour")
    return _AZURE.get(item)
