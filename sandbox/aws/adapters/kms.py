"""KMS: keys."""

from __future__ import annotations

from sandbox.aws.adapters.adapter import Adapter, Properties, without


class Key(Adapter):
    """A key, whose rotation a template switches on."""

    def translated(self, properties: Properties) -> Properties:
        """Leave out a rotation that is switched off."""
        translated = super().translated(properties)
        if str(translated.get("EnableKeyRotation")).lower() == "true":
            return {**translated, "EnableKeyRotation": {}}
        return without(translated, "EnableKeyRotation")
