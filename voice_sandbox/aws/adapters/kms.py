"""KMS: keys."""

from __future__ import annotations

from voice_sandbox.aws.adapters.adapter import Adapter, Properties, omit_keys


class Key(Adapter):
    """A key, whose rotation is enabled by a separate call."""

    def translate(self, properties: Properties) -> Properties:
        """Convert an enabled rotation to the arguments of its call, and omit a disabled one."""
        translated = super().translate(properties)
        if str(translated.get("EnableKeyRotation")).lower() == "true":
            return {**translated, "EnableKeyRotation": {}}
        return omit_keys(translated, "EnableKeyRotation")
