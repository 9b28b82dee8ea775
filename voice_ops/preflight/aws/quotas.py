"""Checks for service quotas: the account's limits and usage, the deployment's requirements, and pending requests."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from voice_blueprint import catalog
from voice_blueprint.limits import iter_limit_usages
from voice_ops.aws.account import REPORT_AREA, Account
from voice_ops.aws.refusals import AWS_ERRORS, explain_error, get_error_code
from voice_ops.needs import calculate_required_fargate_vcpus, calculate_required_vcpus
from voice_ops.preflight.quota import PendingRequest, QuotaState, compare_quota
from voice_ops.preflight.report import CheckResult, CheckStatus, QuotaIncreaseError

if TYPE_CHECKING:
    from types_boto3_service_quotas import ServiceQuotasClient
    from types_boto3_service_quotas.type_defs import ServiceQuotaTypeDef

OPEN_REQUEST_STATUSES = ("PENDING", "CASE_OPENED")

SPOT_QUOTA_CODES_BY_FAMILY = {
    "standard": ("L-34B43A08",),
    "inf": ("L-B5D1601B",),
    "trn": ("L-6B0D517C",),
    "p": ("L-C4BD4855", "L-7212CCBC"),
    "g-vt": ("L-3819A6DF",),
}
"""Quotas of spot vCPUs by family. Listings from 2024 contain a separate quota for P5; listings from 2026 count every P
type against "All P Spot Instance Requests". For p5 types, the first quota that exists in the account is used. Source:
Service Quotas ListServiceQuotas (service code ec2); several public listings of its response agree."""

FARGATE_QUOTA_CODE = "L-3032A538"
"""Fargate On-Demand vCPU resource count; its default in a new account is low.
https://docs.aws.amazon.com/AmazonECS/latest/developerguide/service-quotas.html"""

STANDARD_INSTANCE_FAMILIES = {"a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z"}
"""Instance families in the Standard quota. https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html"""


@dataclass(frozen=True)
class QuotaRequirement:
    """Usage of one quota by the deployment.

    Attributes:
        codes: Service Quotas codes; the first that exists in the account applies.
        count_used_by_others: Function that returns the account's usage without this deployment.
    """

    service: str
    codes: tuple[str, ...]
    unit: str
    min_usage: int
    max_usage: int
    count_used_by_others: Callable[[Account], int]


def compare_quotas(account: Account) -> Iterator[CheckResult]:
    """Compare the account's quotas with the requirements of the deployment."""
    client = account.session.client("service-quotas")
    requested: dict[str, dict[str, PendingRequest]] = {}
    for need in _list_quota_requirements(account):
        if need.service not in requested:
            requested[need.service] = _list_open_requests(account, need.service)
        yield _compare_quota_requirement(account, client, need, requested[need.service])


def calculate_available_vcpus(account: Account, family: str, *, spot: bool) -> int | None:
    """Return the vCPUs in a family that the account can still launch while the deployment runs.

    Returns:
        The quota minus all running vCPUs; ``None`` if Service Quotas has no such quota, or does not respond.
    """
    codes = {row.family: row.code for row in catalog.quotas().values()}
    need = QuotaRequirement(
        "ec2", SPOT_QUOTA_CODES_BY_FAMILY[family] if spot else (codes[family],), "vCPU", 0, 0, lambda _: 0
    )
    try:
        quota = _find_quota(account.session.client("service-quotas"), need)
        running = _count_running_vcpus(account, include_own=True)
    except AWS_ERRORS:
        return None
    return int(quota["Value"]) - running[family, spot] if quota else None


def _compare_quota_requirement(
    account: Account, client: ServiceQuotasClient, need: QuotaRequirement, requested: dict[str, PendingRequest]
) -> CheckResult:
    quota = _find_quota(client, need)
    if quota is None:
        return CheckResult(
            REPORT_AREA,
            f"quota: {need.codes[0]} of {need.service}",
            CheckStatus.UNKNOWN,
            f"Service Quotas has no such quota in {account.region}",
            f"{need.min_usage} at the minimum, {need.max_usage} at the maximum",
            "look it up in the console of Service Quotas",
        )
    code = quota["QuotaCode"]
    state = QuotaState(
        name=f"{quota['QuotaName']} ({code})",
        unit=need.unit,
        limit=int(quota["Value"]),
        used_by_others=need.count_used_by_others(account),
        min_need=need.min_usage,
        max_need=need.max_usage,
    )
    return compare_quota(
        REPORT_AREA, state, requested.get(code), lambda desired: _request_increase(client, need.service, code, desired)
    )


def _list_quota_requirements(account: Account) -> Iterator[QuotaRequirement]:
    codes = {row.family: row.code for row in catalog.quotas().values()}
    running: dict[tuple[str, bool], int] = {}

    def create_other_usage_counter(key: tuple[str, bool]) -> Callable[[Account], int]:
        def count(account: Account) -> int:
            if not running:
                running.update(_count_running_vcpus(account))
            return running.get(key, 0)

        return count

    for (family, spot), (low, high) in calculate_required_vcpus(account.deployment).items():
        chosen = SPOT_QUOTA_CODES_BY_FAMILY[family] if spot else (codes[family],)
        yield QuotaRequirement("ec2", chosen, "vCPU", low, high, create_other_usage_counter((family, spot)))
    low, high = calculate_required_fargate_vcpus(account.deployment)
    yield QuotaRequirement("fargate", (FARGATE_QUOTA_CODE,), "vCPU", low, high, _count_fargate_vcpus)
    addresses, networks = (sum(1 for _ in account.iter_resources(f"AWS::EC2::{kind}")) for kind in ("EIP", "VPC"))
    balancers = sum(
        resource["Properties"].get("Type") == "network"
        for resource in account.iter_resources("AWS::ElasticLoadBalancingV2::LoadBalancer")
    )
    yield QuotaRequirement("ec2", ("L-0263D0A3",), "addresses", addresses, addresses, _count_elastic_ips)
    yield QuotaRequirement("vpc", ("L-F678F1CE",), "VPCs", networks, networks, _count_vpcs)
    yield QuotaRequirement(
        "elasticloadbalancing", ("L-69A177A2",), "load balancers", balancers, balancers, _count_load_balancers
    )
    # These limits apply to a load balancer, a service or this deployment's hosts, so other usage in the account does
    # not count.
    needed = {
        each.limit.id: each for each in sorted(iter_limit_usages(account.deployment), key=lambda each: each.units.max)
    }
    for each in needed.values():
        if each.limit.service and each.limit.quota:
            low, high = each.units.min, each.units.max
            yield QuotaRequirement(each.limit.service, (each.limit.quota,), each.limit.name, low, high, lambda _: 0)


def _find_quota(client: ServiceQuotasClient, need: QuotaRequirement) -> ServiceQuotaTypeDef | None:
    for code in need.codes:
        for get_quota in (client.get_service_quota, client.get_aws_default_service_quota):
            try:
                return get_quota(ServiceCode=need.service, QuotaCode=code)["Quota"]
            except ClientError as error:
                if get_error_code(error) != "NoSuchResourceException":
                    raise
    return None


def _list_open_requests(account: Account, service: str) -> dict[str, PendingRequest]:
    result = account.iter_paginated_items(
        "service-quotas", "list_requested_service_quota_change_history", "RequestedQuotas[]", ServiceCode=service
    )
    return {
        request["QuotaCode"]: PendingRequest(
            int(request["DesiredValue"]), f"{request['Id']}, {request['Created']:%Y-%m-%d}"
        )
        for request in result
        if request["Status"] in OPEN_REQUEST_STATUSES
    }


def _request_increase(client: ServiceQuotasClient, service: str, code: str, desired: int) -> str:
    try:
        answer = client.request_service_quota_increase(ServiceCode=service, QuotaCode=code, DesiredValue=desired)
    except AWS_ERRORS as error:
        if isinstance(error, ClientError) and get_error_code(error) == "ResourceAlreadyExistsException":
            return "another request is open; no request was filed"
        refusal = explain_error(error)
        raise QuotaIncreaseError(f"{refusal.result}; {refusal.remedy}") from None
    return f"filed request {answer['RequestedQuota']['Id']}"


def find_quota_family(instance_type: str) -> str | None:
    """Return the quota family of an instance type, or ``None`` if no fleet uses the family."""
    family_match = re.match(r"[a-z]+", instance_type)
    prefix = family_match[0] if family_match else ""
    if prefix in STANDARD_INSTANCE_FAMILIES:
        return "standard"
    return {"inf": "inf", "trn": "trn", "p": "p", "g": "g-vt", "gr": "g-vt", "vt": "g-vt"}.get(prefix)


def _count_running_vcpus(account: Account, *, include_own: bool = False) -> Counter[tuple[str, bool]]:
    """Count the vCPUs of running instances, by default without those of the deployment.

    Quotas count a type's default vCPUs, regardless of an instance's CPU options.
    """
    running: Counter[tuple[str, bool]] = Counter()
    filters = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    for instance in account.iter_paginated_items(
        "ec2", "describe_instances", "Reservations[].Instances[]", Filters=filters
    ):
        tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}
        if include_own or tags.get("aws:autoscaling:groupName") not in account.scaling_groups:
            running[instance["InstanceType"], instance.get("InstanceLifecycle") == "spot"] += 1
    types = sorted({kind for kind, _ in running})
    rows = (
        account.iter_paginated_items("ec2", "describe_instance_types", "InstanceTypes[]", InstanceTypes=types)
        if types
        else ()
    )
    vcpus = {row["InstanceType"]: row["VCpuInfo"]["DefaultVCpus"] for row in rows}
    total: Counter[tuple[str, bool]] = Counter()
    for (kind, spot), count in running.items():
        if family := find_quota_family(kind):
            total[family, spot] += count * vcpus[kind]
    return total


def _count_elastic_ips(account: Account) -> int:
    addresses = account.session.client("ec2").describe_addresses()["Addresses"]
    return sum(not account.belongs_to_deployment(address.get("Tags", [])) for address in addresses)


def _count_vpcs(account: Account) -> int:
    return sum(
        not account.belongs_to_deployment(vpc.get("Tags", []))
        for vpc in account.iter_paginated_items("ec2", "describe_vpcs", "Vpcs[]")
    )


def _count_load_balancers(account: Account) -> int:
    path = "LoadBalancers[?Type == 'network'].LoadBalancerArn"
    arns = list(account.iter_paginated_items("elbv2", "describe_load_balancers", path))
    client = account.session.client("elbv2")
    batches = [arns[start : start + 20] for start in range(0, len(arns), 20)]  # DescribeTags accepts 20
    tags = [row for batch in batches for row in client.describe_tags(ResourceArns=batch)["TagDescriptions"]]
    return sum(not account.belongs_to_deployment(row["Tags"]) for row in tags)


def _count_fargate_vcpus(account: Account) -> int:
    """Count the vCPUs of running Fargate tasks without those of the deployment."""
    client, units = account.session.client("ecs"), 0
    for cluster in account.iter_paginated_items("ecs", "list_clusters", "clusterArns[]"):
        tags = client.list_tags_for_resource(resourceArn=cluster).get("tags", [])
        if account.belongs_to_deployment([{"Key": tag.get("key", ""), "Value": tag.get("value", "")} for tag in tags]):
            continue
        tasks = list(
            account.iter_paginated_items("ecs", "list_tasks", "taskArns[]", cluster=cluster, launchType="FARGATE")
        )
        for start in range(0, len(tasks), 100):  # DescribeTasks accepts 100
            result = client.describe_tasks(cluster=cluster, tasks=tasks[start : start + 100])["tasks"]
            units += sum(int(task.get("cpu", 0)) for task in result)
    return math.ceil(units / 1024)
