"""S3: bucket policies that are kept and not enforced, like every other policy here.

moto reads a statement whose condition it cannot check as a refusal, so the usual policy that denies unencrypted
transport would close every bucket.
"""

from __future__ import annotations

from typing import Any

from moto.iam.access_control import PermissionResult
from moto.s3 import models
from moto.s3.models import FakeBucket


class MendedBucket(FakeBucket):
    """A bucket that leaves the question who may do what to nobody."""

    def get_permission(self, action: str, resource: str) -> PermissionResult:  # noqa: ARG002
        """Neither allow nor deny, as a bucket without a policy does."""
        return PermissionResult.NEUTRAL


def install() -> None:
    """Put the mend in place."""
    module: Any = models
    module.FakeBucket = MendedBucket
