"""Disables work in the Pulumi SDK that the local engine does not need and that takes more than half of a run's time."""

import pulumi.log
import pulumi.resource
import pulumi.runtime.resource
from pulumi.runtime.proto.source_pb2 import StackTrace


def disable_provider_calls() -> None:
    """Disable the unnecessary SDK calls in this process."""
    # Every debug message is a round trip to the engine.
    pulumi.log.debug = _do_nothing
    # The engine receives aliases as given. Only older engines need the URNs of aliases, and azure-native has thousands
    # of aliases.
    pulumi.resource.collapse_alias_to_urn = _do_nothing  # type: ignore[attr-defined, assignment]
    # Otherwise, the SDK would read the location of each resource from the source code.
    pulumi.runtime.resource._get_stack_trace = StackTrace


def _do_nothing(*_arguments: object, **_options: object) -> None:
    """Replace an SDK function whose effect is not needed."""
