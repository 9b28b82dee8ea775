"""KMS: keys."""

from __future__ import annotations

from voice_sandbox.aws.adapters.adapter import Adapter, Properties, without


class Key(Adapter):
    """A key, whose rotation a template enables."""

    def translated(self, properties: Properties) -> Properties:
        """Omit a disabled rotation."""
        translated = super().translated(properties)
        if str(translated.get("EnableKeyRotation")).lower() == "true":
            return {**translated, "EnableKeyRotation": {}}
        return without(translated, "EnableKeyRotation")
