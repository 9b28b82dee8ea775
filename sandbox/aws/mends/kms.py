"""KMS: the period of a key's rotation."""

from __future__ import annotations

import json

from moto.kms import urls
from moto.kms.responses import KmsResponse

from sandbox.aws.mends.base import records, take_over

_DEFAULT_DAYS = 365


class MendedKms(KmsResponse):
    """moto's KMS API with what it lacks."""

    def enable_key_rotation(self) -> str:
        """Answer EnableKeyRotation."""
        answer = super().enable_key_rotation()
        days = self._get_param("RotationPeriodInDays", _DEFAULT_DAYS)
        records(self.kms_backend, "rotation")[self._key()] = {"RotationPeriodInDays": days}
        return answer

    def get_key_rotation_status(self) -> str:
        """Answer GetKeyRotationStatus."""
        status = json.loads(super().get_key_rotation_status())
        if status["KeyRotationEnabled"]:
            status |= records(self.kms_backend, "rotation").get(self._key(), {})
        return json.dumps({**status, "KeyId": self._key()})

    def _key(self) -> str:
        return str(self.kms_backend.get_key_id(self._get_param("KeyId")))


def install() -> None:
    """Put the mend in place."""
    take_over(urls, KmsResponse, MendedKms)
