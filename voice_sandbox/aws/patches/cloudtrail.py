"""CloudTrail: an explicit error for event lookups.

The CDK looks up events after every failed deployment, and retries for half a minute if the response is invalid.
"""

from __future__ import annotations

from moto.cloudtrail import urls
from moto.cloudtrail.responses import CloudTrailResponse
from moto.core.exceptions import JsonRESTError

from voice_sandbox.aws.patches.base import replace_response_class


class PatchedCloudTrail(CloudTrailResponse):
    """moto's CloudTrail API, extended with the operation that moto lacks."""

    def lookup_events(self) -> str:
        """Reject LookupEvents, since the sandbox records no calls."""
        raise JsonRESTError("UnsupportedOperationException", "The sandbox records no calls.")


def install() -> None:
    """Install the patch."""
    replace_response_class(urls, CloudTrailResponse, PatchedCloudTrail)
