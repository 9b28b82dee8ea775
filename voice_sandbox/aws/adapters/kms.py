"""KMS: keys."""

from __future__ import annotations

from voice_sandbox.aws.adapters.adapter import Adapter, Properties, without


class Key(Adapter):
    """A key, whose rotation is enabled by a separate call."""

    def translated(self, properties: Properties) -> Properties:
        """Convert an enabled rotation to the arguments of its call, and omit a disabled one."""
        translated = super().translated(properties)
        if str(translated.get("EnableKeyRotation")).lower() == "true":
            return {**translated, "EnableKeyRotation": {}}
        return without(translated, "EnableKeyRotation")
