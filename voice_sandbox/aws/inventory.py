"""Inventory of the local AWS by resource kind, which must be the same before a deployment and after its teardown."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import boto3
import jmespath
import yaml

LIST_CALL_BY_KIND: dict[str, list[Any]] = yaml.safe_load(
    Path(__file__).with_name("inventory.yaml").read_text(encoding="utf-8")
)


def _list_ids(session: boto3.Session, endpoint: str, kind: str) -> Iterable[str]:
    service, operation, path, *arguments = LIST_CALL_BY_KIND[kind]
    client: Any = session.client(service, endpoint_url=endpoint)
    request = arguments[0] if arguments else {}
    if client.can_paginate(operation):
        return client.get_paginator(operation).paginate(**request).search(path)  # type: ignore[no-any-return]
    return jmespath.search(path, getattr(client, operation)(**request))  # type: ignore[no-any-return]


def _list_kms_keys(session: boto3.Session, endpoint: str) -> Iterable[str]:
    client = session.client("kms", endpoint_url=endpoint)
    for key in client.get_paginator("list_keys").paginate().search("Keys[].KeyId"):
        # A deleted key exists until its recovery window ends, as on AWS.
        if client.describe_key(KeyId=key)["KeyMetadata"]["KeyState"] != "PendingDeletion":
            yield key


def _list_dns_records(session: boto3.Session, endpoint: str) -> Iterable[str]:
    client = session.client("route53", endpoint_url=endpoint)
    for zone in client.list_hosted_zones()["HostedZones"]:
        for record in client.list_resource_record_sets(HostedZoneId=zone["Id"])["ResourceRecordSets"]:
            yield " ".join([record["Type"], record["Name"], record.get("SetIdentifier", "")])


def _list_budgets(session: boto3.Session, endpoint: str) -> Iterable[str]:
    account = session.client("sts", endpoint_url=endpoint).get_caller_identity()["Account"]
    budgets = session.client("budgets", endpoint_url=endpoint).describe_budgets(AccountId=account)["Budgets"]
    return (budget["BudgetName"] for budget in budgets)


_LIST_FUNCTION_BY_KIND = {"key": _list_kms_keys, "DNS record": _list_dns_records, "budget": _list_budgets}
INVENTORY_KINDS = {*LIST_CALL_BY_KIND, *_LIST_FUNCTION_BY_KIND}


def collect_resource_ids(session: boto3.Session, endpoint: str) -> dict[str, set[str]]:
    """Return the ids of all resources, by kind."""
    ids_by_kind = {kind: set(_list_ids(session, endpoint, kind)) for kind in LIST_CALL_BY_KIND}
    return ids_by_kind | {kind: set(count(session, endpoint)) for kind, count in _LIST_FUNCTION_BY_KIND.items()}


def count_added_resources(before: dict[str, set[str]], after: dict[str, set[str]]) -> Counter[str]:
    """Count new resources by kind. Kinds without new resources are omitted."""
    return Counter({kind: len(after[kind] - before[kind]) for kind in after if after[kind] - before[kind]})
