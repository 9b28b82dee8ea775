"""Deletes stacks one at a time, in the order that cross-stack imports require."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from voice_ops.aws.refusals import get_error_code
from voice_sandbox.aws.cloudformation.template import sort_by_dependency
from voice_sandbox.aws.diff import iter_imported_names

if TYPE_CHECKING:
    from types_boto3_cloudformation import CloudFormationClient
    from types_boto3_cloudformation.type_defs import StackTypeDef

POLL_INTERVAL_S = 5.0
MAX_WAIT_S = 3600
"""Timeout for the deletion of one stack. A load balancer or a replication group takes 15 minutes."""
Templates = Mapping[str, Mapping[str, Any]]
"""Templates by stack name."""


class DeletionError(Exception):
    """A stack was not deleted. The message contains the reason and a remedy."""


def sort_stacks_for_deletion(stacks: Sequence[str], live: Templates) -> tuple[str, ...]:
    """Return the stacks in deletion order: each stack precedes the stacks that it imports from."""
    needs = {stack: find_exporting_stacks(live[stack], live) & set(stacks) for stack in sorted(stacks)}
    return tuple(reversed(sort_by_dependency(needs)))


def find_exporting_stacks(template: Mapping[str, Any], live: Templates) -> set[str]:
    """Return the stacks that a template imports from."""
    exported = {
        output["Export"]["Name"]: stack
        for stack, other in live.items()
        for output in other.get("Outputs", {}).values()
        if "Export" in output
    }
    return {exported[name] for name in iter_imported_names(template.get("Resources", {})) if name in exported}


def delete_stacks(client: CloudFormationClient, stacks: Iterable[str], report: Callable[[str], None]) -> None:
    """Delete stacks one after another, and wait until each is deleted.

    Args:
        client: CloudFormation client in the region of the stacks.
        report: Function that receives a line per stack.

    Raises:
        DeletionError: A stack could not be deleted.
    """
    for stack in stacks:
        report(f"delete {stack}")
        started_at = time.monotonic()
        client.delete_stack(StackName=stack)
        while result := _describe_stack(client, stack):
            state, elapsed_s = result["StackStatus"], time.monotonic() - started_at
            # A deletion that is rejected immediately, for example because of an export in use, leaves the previous
            # status.
            if state.endswith("FAILED") or (not state.startswith("DELETE") and elapsed_s > POLL_INTERVAL_S):
                reason = result.get("StackStatusReason") or state
                raise DeletionError(f"{stack} was not deleted: {reason}; fix the cause and run the command again")
            if elapsed_s > MAX_WAIT_S:
                raise DeletionError(
                    f"{stack} is still {state} after {elapsed_s:.0f} s (limit: {MAX_WAIT_S} s); check its events and "
                    "run the command again"
                )
            time.sleep(POLL_INTERVAL_S)


def _describe_stack(client: CloudFormationClient, stack: str) -> StackTypeDef | None:
    """Return the description of a stack, or ``None`` if the stack is deleted."""
    try:
        (result,) = client.describe_stacks(StackName=stack)["Stacks"]
    except ClientError as error:
        if get_error_code(error) == "ValidationError":
            return None
        raise
    return None if result["StackStatus"] == "DELETE_COMPLETE" else result
