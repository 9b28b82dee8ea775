"""Deletion of resources in reverse dependency order.

Retained resources, and the dependencies of a resource that cannot be deleted, are kept.
"""

from __future__ import annotations

from collections.abc import Iterable

from botocore.exceptions import ClientError

from voice_sandbox.aws.adapters.adapter import is_not_found_error
from voice_sandbox.aws.cloudformation.stack import Resource, Stack
from voice_sandbox.aws.cloudformation.template import sort_by_dependency

RETAIN_POLICIES = frozenset({"Retain", "RetainExceptOnCreate"})


def delete_resources(
    stack: Stack,
    resources: Iterable[Resource],
    *,
    policy: str = "DeletionPolicy",
    keep: frozenset[str] = RETAIN_POLICIES,
) -> dict[str, str]:
    """Delete resources in reverse dependency order.

    Args:
        stack: The stack, for events.
        resources: Resources to delete, at most one per logical id.
        policy: The template attribute with the deletion policy.
        keep: Values of that attribute that retain the resource.

    Returns:
        The reason for each logical id that could not be deleted. The dependencies of these resources are kept as well.
    """
    by_name = {resource.logical_id: resource for resource in resources}
    order = sort_by_dependency({name: resource.dependencies for name, resource in by_name.items()})
    failed: dict[str, str] = {}
    blocked: set[str] = set()
    for name in reversed(order):
        resource = by_name[name]
        if name in blocked:
            blocked |= resource.dependencies
        elif resource.body.get(policy) in keep:
            stack.set_resource_status(resource, "DELETE_SKIPPED")
        else:
            reason = _delete_resource(stack, resource, snapshot=resource.body.get(policy) == "Snapshot")
            if reason:
                failed[name] = reason
                blocked |= resource.dependencies
    return failed


def _delete_resource(stack: Stack, resource: Resource, *, snapshot: bool) -> str | None:
    stack.set_resource_status(resource, "DELETE_IN_PROGRESS")
    try:
        if snapshot:
            resource.adapter.take_snapshot()
        resource.adapter.delete()
    except Exception as error:  # noqa: BLE001 - any error of a service is the reason that the user has to see
        if not (isinstance(error, ClientError) and is_not_found_error(error)):
            stack.set_resource_status(resource, "DELETE_FAILED", str(error))
            return str(error)
    stack.set_resource_status(resource, "DELETE_COMPLETE")
    return None
