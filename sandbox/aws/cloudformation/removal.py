"""Deletion: what needs others goes first, retained resources stay, and a failure stops what it depends on."""

from __future__ import annotations

from collections.abc import Iterable

from botocore.exceptions import ClientError

from sandbox.aws.adapters.adapter import is_missing
from sandbox.aws.cloudformation.stack import Resource, Stack
from sandbox.aws.cloudformation.template import in_order

RETAIN = frozenset({"Retain", "RetainExceptOnCreate"})


def remove(
    stack: Stack, resources: Iterable[Resource], *, policy: str = "DeletionPolicy", keep: frozenset[str] = RETAIN
) -> dict[str, str]:
    """Delete resources in reverse dependency order.

    Args:
        stack: Gets the events.
        resources: What to delete, at most one per logical id.
        policy: The template attribute that says whether a resource is to be kept.
        keep: The values of that attribute that keep it.

    Returns:
        The reason for each logical id that could not be deleted; what such a resource needs is left alone too.
    """
    by_name = {resource.logical_id: resource for resource in resources}
    order = in_order({name: resource.needs for name, resource in by_name.items()})
    failed: dict[str, str] = {}
    blocked: set[str] = set()
    for name in reversed(order):
        resource = by_name[name]
        if name in blocked:
            blocked |= resource.needs
        elif resource.body.get(policy) in keep:
            stack.report(resource, "DELETE_SKIPPED")
        else:
            reason = _delete(stack, resource, snapshot=resource.body.get(policy) == "Snapshot")
            if reason:
                failed[name] = reason
                blocked |= resource.needs
    return failed


def _delete(stack: Stack, resource: Resource, *, snapshot: bool) -> str | None:
    stack.report(resource, "DELETE_IN_PROGRESS")
    try:
        if snapshot:
            resource.adapter.snapshot()
        resource.adapter.delete()
    except Exception as error:  # noqa: BLE001 - whatever a service answers is the reason that the user has to see
        if not (isinstance(error, ClientError) and is_missing(error)):
            stack.report(resource, "DELETE_FAILED", str(error))
            return str(error)
    stack.report(resource, "DELETE_COMPLETE")
    return None
