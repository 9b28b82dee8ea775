"""Systems Manager: parameters."""

from __future__ import annotations

from voice_sandbox.aws.adapters.adapter import Adapter, Properties, find_changed_keys, omit_keys


class Parameter(Adapter):
    """A parameter, which the API overwrites only if the call requests it."""

    def configure(self, before: Properties, after: Properties) -> None:
        """Overwrite the parameter if a property other than its tags has changed."""
        if find_changed_keys(before, after) - {"Tags"}:
            self.call("put_parameter", omit_keys(after, "Tags"), Overwrite=True)
