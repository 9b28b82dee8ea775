"""Systems Manager: parameters."""

from __future__ import annotations

from voice_sandbox.aws.adapters.adapter import Adapter, Properties, changed_keys, without


class Parameter(Adapter):
    """A parameter, which a call overwrites only on request."""

    def configure(self, before: Properties, after: Properties) -> None:
        """Put the parameter again."""
        if changed_keys(before, after) - {"Tags"}:
            self.call("put_parameter", without(after, "Tags"), Overwrite=True)
