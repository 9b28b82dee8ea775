"""S3: bucket policies that are stored but not enforced, like all other policies here.

moto evaluates a statement with an unsupported condition as a denial, so the usual policy that denies unencrypted
transport would deny all access.
"""

from __future__ import annotations

from typing import Any

from moto.iam.access_control import PermissionResult
from moto.s3 import models
from moto.s3.models import FakeBucket


class PatchedBucket(FakeBucket):
    """A bucket without authorization."""

    def get_permission(self, action: str, resource: str) -> PermissionResult:  # noqa: ARG002
        """Neither allow nor deny access, as if the bucket had no policy."""
        return PermissionResult.NEUTRAL


def install() -> None:
    """Install the patch."""
    module: Any = models
    module.FakeBucket = PatchedBucket
