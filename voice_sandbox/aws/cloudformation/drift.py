"""Drift: changes that were not made through CloudFormation.

As in AWS, only properties in the template are compared, and only for types whose row in the table has a read operation.
Additions by other resources of the stack, such as rules of a group, are not drift.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from botocore.exceptions import ClientError
from moto.core.utils import utcnow

from voice_sandbox.aws.adapters.adapter import is_not_found_error
from voice_sandbox.aws.cloudformation.stack import Resource, Stack
from voice_sandbox.aws.shapes import Json


@dataclass
class DriftDetection:
    """The result of DetectStackDrift, with the attributes that moto's serializer reads."""

    stack_id: str
    drifts: list[dict[str, Any]]
    stack_drift_detection_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    detection_status: str = "DETECTION_COMPLETE"
    timestamp: datetime = field(default_factory=utcnow)

    @property
    def drifted_stack_resource_count(self) -> int:
        return sum(drift["StackResourceDriftStatus"] != "IN_SYNC" for drift in self.drifts)

    @property
    def stack_drift_status(self) -> str:
        return "DRIFTED" if self.drifted_stack_resource_count else "IN_SYNC"


def detect_drift(stack: Stack, names: Collection[str] = ()) -> DriftDetection:
    """Compare the named resources of a stack, by default all of them, with their actual state."""
    drifts = [
        _detect_resource_drift(stack, resource)
        for name, resource in list(stack.resources.items())
        if resource.adapter.kind.live and (not names or name in names)
    ]
    return DriftDetection(stack.stack_id, drifts)


def _detect_resource_drift(stack: Stack, resource: Resource) -> dict[str, Any]:
    attached = [item.adapter for item in stack.resources.values() if resource.logical_id in item.dependencies]
    description: dict[str, Any] = {
        "StackId": stack.stack_id,
        "LogicalResourceId": resource.logical_id,
        "PhysicalResourceId": resource.physical_id,
        "ResourceType": resource.resource_type,
        "Timestamp": utcnow(),
    }
    try:
        live = resource.adapter.compare_with_actual(attached)
    except ClientError as error:
        if not is_not_found_error(error):
            raise
        live = None
    if live is None:
        return {**description, "StackResourceDriftStatus": "DELETED", "ExpectedProperties": "{}"}
    differences = [
        {
            "PropertyPath": f"/{name}",
            "ExpectedValue": json.dumps(expected, default=str),
            "ActualValue": json.dumps(actual, default=str),
            "DifferenceType": "REMOVE" if actual in (None, "", []) else "NOT_EQUAL",
        }
        for name, (expected, actual) in live.items()
        if not _matches_expected(expected, actual)
    ]
    return {
        **description,
        "StackResourceDriftStatus": "MODIFIED" if differences else "IN_SYNC",
        "ExpectedProperties": json.dumps({name: expected for name, (expected, _) in live.items()}, default=str),
        "ActualProperties": json.dumps({name: actual for name, (_, actual) in live.items()}, default=str),
        "PropertyDifferences": differences,
    }


def _matches_expected(expected: Json, actual: Json) -> bool:
    """Return True if an actual value matches the desired one.

    Additional members of an object and a different order of list items are not drift.
    """
    if isinstance(expected, dict) and isinstance(actual, dict):
        return all(_matches_expected(item, actual.get(key)) for key, item in expected.items())
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(
            any(_matches_expected(item, other) for other in actual) for item in expected
        )
    if expected in ([], {}, "", None) and actual in ([], {}, "", None):
        return True
    return any(one == other for one in _iter_possible_values(expected) for other in _iter_possible_values(actual))


def _iter_possible_values(value: Json) -> Iterator[Json]:
    """Yield a value and, if the value is JSON text such as a policy, its parsed content."""
    yield value
    if isinstance(value, str) and value.startswith("{"):
        yield json.loads(value)
