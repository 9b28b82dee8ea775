"""AWS API calls of a program, extracted from its source or recorded at run time."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import botocore.session
from botocore import xform_name
from botocore.client import BaseClient

Call = tuple[str, str]
"""Service and operation, such as ``("ec2", "DescribeImages")``."""

SESSION = botocore.session.get_session()
PREFIXES = {"elbv2": "elasticloadbalancing", "resourcegroupstaggingapi": "tag", "service-quotas": "servicequotas"}
"""IAM prefixes of services whose boto3 name differs."""
ACTIONS = {
    # Without s3:ListBucket, S3 returns 403 for a missing object.
    ("s3", "HeadObject"): ["s3:GetObject", "s3:ListBucket"],
    ("s3", "ListObjectVersions"): ["s3:ListBucketVersions"],
    ("s3", "DeleteObjects"): ["s3:DeleteObject", "s3:DeleteObjectVersion"],
}
"""IAM actions of operations whose names differ. Source:
https://docs.aws.amazon.com/AmazonS3/latest/userguide/using-with-s3-policy-actions.html"""


def actions(calls: set[Call]) -> set[str]:
    """Return the IAM actions that calls need."""
    return {
        action
        for service, operation in calls
        for action in ACTIONS.get((service, operation), [f"{PREFIXES.get(service, service)}:{operation}"])
    }


@contextmanager
def record_calls() -> Iterator[set[Call]]:
    """Record the calls of boto3 in this scope."""
    calls: set[Call] = set()
    original = BaseClient._make_api_call  # type: ignore[attr-defined]

    def make(client: Any, operation: str, parameters: Any) -> Any:  # noqa: ANN401  botocore's
        calls.add((client.meta.service_model.service_name, operation))
        return original(client, operation, parameters)

    with patch.object(BaseClient, "_make_api_call", make):
        yield calls


@cache
def methods(service: str) -> dict[str, str]:
    """Return the operations of a service by boto3's method names."""
    return {xform_name(operation): operation for operation in SESSION.get_service_model(service).operation_names}


def calls_in_source(file: Path) -> set[Call]:
    """Return the calls that a module contains.

    Clients are recognized by their creation, ``session.client("ec2")``, by names that are bound to one in the same
    function, and by the annotations of boto3's stubs, ``EC2Client``. A reference to a method counts as a call.
    """
    source = file.read_text(encoding="utf-8")
    found: set[Call] = set()
    if not any(word in source for word in ("client(", "iter_paginated_items(", *CLIENTS)):
        return found
    tree = ast.parse(source)
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        bound = dict(_client_bindings(function))
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute):
                service = _created_service(node.value) or (
                    bound.get(node.value.id) if isinstance(node.value, ast.Name) else None
                )
                if service and node.attr in methods(service):
                    found.add((service, methods(service)[node.attr]))
            if isinstance(node, ast.Call):
                found |= set(_listing_calls(node, bound))
    return found


def _client_bindings(function: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                pairs = (
                    zip(target.elts, node.value.elts, strict=True)
                    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
                    else [(target, node.value)]
                )
                yield from (
                    (name.id, service)
                    for name, value in pairs
                    if isinstance(name, ast.Name) and (service := _created_service(value))
                )
        if isinstance(node, ast.arg) and node.annotation is not None:
            name = ast.unparse(node.annotation).strip("'\"")
            if name in CLIENTS:
                yield node.arg, CLIENTS[name]


CLIENTS = {
    "AutoScalingClient": "autoscaling",
    "CloudFormationClient": "cloudformation",
    "ServiceQuotasClient": "service-quotas",
}
"""Services of the stub types in function signatures."""


def _created_service(value: ast.expr) -> str | None:
    """Return the service of an expression that creates a client."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "client":
        first = value.args[0] if value.args else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            return first.value
    return None


def _listing_calls(node: ast.Call, bound: dict[str, str]) -> Iterator[Call]:
    """Yield calls such as ``account.iter_paginated_items("ec2", "describe_images")`` and ``get_paginator("...")``."""
    if not isinstance(node.func, ast.Attribute):
        return
    words = [each.value if isinstance(each, ast.Constant) else None for each in node.args]
    if node.func.attr == "iter_paginated_items" and isinstance(words[0], str) and isinstance(words[1], str):
        yield words[0], methods(words[0])[words[1]]
    if node.func.attr == "get_paginator" and words and isinstance(words[0], str):
        owner = node.func.value
        service = _created_service(owner) or (bound.get(owner.id) if isinstance(owner, ast.Name) else None)
        if service:
            yield service, methods(service)[words[0]]


def unrecognized_clients(file: Path) -> list[str]:
    """Return uses of a name ``client`` that is bound to no recognized service."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    found = []
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        bound = dict(_client_bindings(function))
        uses = [
            node
            for node in ast.walk(function)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "client"
        ]
        found += [f"line {use.lineno}: client.{use.attr}" for use in uses if "client" not in bound]
    return found
