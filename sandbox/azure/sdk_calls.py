"""What the SDK of Pulumi works out for others, and the local engine has no use for: more than half of a run."""

import pulumi.log
import pulumi.resource
import pulumi.runtime.resource
from pulumi.runtime.proto.source_pb2 import StackTrace


def leave_out_calls() -> None:
    """Keep the SDK of this process from making them."""
    # Every debug message is a round trip to the engine.
    pulumi.log.debug = _ignore
    # The engine is told of aliases as they are given. Their URNs are for older engines, and azure-native has thousands.
    pulumi.resource.collapse_alias_to_urn = _ignore  # type: ignore[attr-defined, assignment]
    # Where in a program each resource is declared would be read from the sources.
    pulumi.runtime.resource._get_stack_trace = StackTrace


def _ignore(*_arguments: object, **_options: object) -> None:
    """Do nothing."""
