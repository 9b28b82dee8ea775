"""Disables work of Pulumi's SDK that takes more than half of a run's time and that the local engine does not need."""

import pulumi.log
import pulumi.resource
import pulumi.runtime.resource
from pulumi.runtime.proto.source_pb2 import StackTrace


def disable_provider_calls() -> None:
    """Disable the unnecessary calls in the SDK of this process."""
    # Every debug message is a round trip to the engine.
    pulumi.log.debug = _do_nothing
    # The engine receives aliases as given. Their URNs are for older engines, and azure-native has thousands.
    pulumi.resource.collapse_alias_to_urn = _do_nothing  # type: ignore[attr-defined, assignment]
    # The source location of each resource would be read from the sources.
    pulumi.runtime.resource._get_stack_trace = StackTrace


def _do_nothing(*_arguments: object, **_options: object) -> None:
    """Replace a function of the SDK whose effect is not wanted."""
