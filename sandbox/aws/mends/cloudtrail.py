"""CloudTrail: a clear no to the question for recorded calls.

The CDK asks it after every failed deployment, and repeats itself for half a minute on an answer that is no answer.
"""

from __future__ import annotations

from moto.cloudtrail import urls
from moto.cloudtrail.responses import CloudTrailResponse
from moto.core.exceptions import JsonRESTError

from sandbox.aws.mends.base import take_over


class MendedCloudTrail(CloudTrailResponse):
    """moto's CloudTrail API with what it lacks."""

    def lookup_events(self) -> str:
        """Refuse LookupEvents: nothing records the calls that the sandbox gets."""
        raise JsonRESTError("UnsupportedOperationException", "The sandbox records no calls.")


def install() -> None:
    """Put the mend in place."""
    take_over(urls, CloudTrailResponse, MendedCloudTrail)
